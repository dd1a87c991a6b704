"""Engine: whether it is full, and whether it works on many questions at once."""

from deploy.grafana.panels import Row, plot
from deploy.grafana.promql import INSTANCE, mean, rate, total

_ROWS_SKIPPED = rate("recall_rows_skipped_total", "phase")
_ROWS_RUN = rate("recall_batch_rows_sum", "phase")

ENGINE = Row(
    "Engine",
    (
        plot(
            "Beam rows",
            "Live beams, and the room for more.",
            "none",
            (total("recall_beam_rows", "state"), "{{state}}"),
            is_stacked=True,
        ),
        plot(
            "Context pages",
            "KV of prompts: in use, kept for prompts that begin alike, free.",
            "none",
            (total("recall_context_pages", "state"), "{{state}}"),
            is_stacked=True,
        ),
        plot(
            "Queue depth",
            "Questions that wait to be admitted.",
            "none",
            (total("recall_queue_depth", "instance"), "{{instance}}"),
        ),
        plot(
            "Oldest in the queue",
            "How long the question that has waited longest has waited.",
            "s",
            (f"max by (instance) (recall_queue_age_seconds{{{INSTANCE}}})", "{{instance}}"),
        ),
        plot(
            "Waiting work",
            "What the bounds of the queue count: beams and prompt tokens of the questions that wait.",
            "none",
            (total("recall_queue_rows"), "beams"),
            (total("recall_queue_tokens"), "prompt tokens"),
        ),
        plot(
            "Engines unwell",
            "Stuck in a step, or failing every one; their replicas want no calls.",
            "none",
            (total("recall_engine_unhealthy", "bundle", "instance"), "{{instance}} {{bundle}}"),
        ),
        plot("Steps", "Runs of the model.", "ops", (rate("recall_steps_total", "phase"), "{{phase}}")),
        plot(
            "Questions in a step",
            "Mean. Near 1 under load, questions do not share their steps.",
            "none",
            (mean("recall_batch_requests", "phase"), "{{phase}}"),
        ),
        plot("Rows in a step", "Mean.", "none", (mean("recall_batch_rows", "phase"), "{{phase}}")),
        plot(
            "Rows skipped",
            "Share of rows that could not change an answer and were never run.",
            "percentunit",
            (f"{_ROWS_SKIPPED} / ({_ROWS_SKIPPED} + {_ROWS_RUN})", "{{phase}}"),
        ),
        plot(
            "Prompt tokens",
            "Hit: their KV was kept from an earlier prompt. Miss: they were run.",
            "cps",
            (rate("recall_prefix_tokens_total", "result"), "{{result}}"),
            is_stacked=True,
        ),
    ),
)
