"""Bundle and catalogue: which versions serve, and how old they are."""

from deploy.grafana.panels import Row, plot
from deploy.grafana.promql import INSTANCE, rate

SERVED = Row(
    "Bundle and catalogue",
    (
        plot(
            "Replicas by bundle version",
            "Two versions of a bundle side by side are a rollout under way.",
            "none",
            (f"count by (bundle, version, score_space) (recall_bundle_info{{{INSTANCE}}})", "{{bundle}} {{version}}"),
            is_stacked=True,
        ),
        plot(
            "Replicas by catalogue version",
            "All replicas of a bundle should change together.",
            "none",
            (f"count by (bundle, version) (recall_catalog_info{{{INSTANCE}}})", "{{bundle}} {{version}}"),
            is_stacked=True,
        ),
        plot(
            "Replicas by software version",
            "The service's and Python's.",
            "none",
            (
                f"count by (version, python_version) (recall_build_info{{{INSTANCE}}})",
                "{{version}}, Python {{python_version}}",
            ),
            is_stacked=True,
        ),
        plot(
            "Catalogue age",
            "Since the oldest catalogue that still serves was loaded.",
            "s",
            (f"time() - min by (bundle) (recall_catalog_loaded_timestamp_seconds{{{INSTANCE}}})", "{{bundle}}"),
        ),
        plot(
            "Catalogue items",
            "Of the replica that holds the fewest.",
            "short",
            (f"min by (bundle) (recall_catalog_items{{{INSTANCE}}})", "{{bundle}}"),
        ),
        plot(
            "Reloads",
            "Exchanges while serving, and attempts that failed.",
            "ops",
            (rate("recall_reloads_total", "kind", "result"), "{{kind}} {{result}}"),
        ),
        plot(
            "Warm-up",
            "Of the slowest replica.",
            "s",
            (f"max by (bundle) (recall_warmup_seconds{{{INSTANCE}}})", "{{bundle}}"),
        ),
    ),
)
