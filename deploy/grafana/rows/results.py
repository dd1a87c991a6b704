"""Results: whether answers are whole, and how much of them is proven."""

from deploy.grafana.panels import Row, plot
from deploy.grafana.promql import mean, rate

RESULTS = Row(
    "Results",
    (
        plot(
            "Items of an answer",
            "Means: returned, and proven to be the model's true top of the whole catalogue.",
            "none",
            (mean("recall_items_returned"), "returned"),
            (mean("recall_proven_items"), "proven"),
        ),
        plot("Beam width", "Mean over answers.", "none", (mean("recall_beam_width"), "beam width")),
        plot("Short answers", "By reason.", "reqps", (rate("recall_short_answers_total", "reason"), "{{reason}}")),
        plot(
            "Unknown history items",
            "Items of histories that no catalogue knows. A rise means an old catalogue, or ids of another one.",
            "cps",
            (rate("recall_unknown_history_items_total", "instance"), "{{instance}}"),
        ),
        plot(
            "Unknown excluded items",
            "Items left out by request that no catalogue knows. A rise means an old catalogue, or ids of another one.",
            "cps",
            (rate("recall_unknown_excluded_items_total", "instance"), "{{instance}}"),
        ),
        plot(
            "Filters",
            "Remembered, or worked out anew. Many of the latter: filters of all kinds, or too little room.",
            "reqps",
            (rate("recall_filter_duration_seconds_count", "result"), "{{result}}"),
        ),
    ),
)
