"""Cache: what it saves, and whether Redis is well."""

from deploy.grafana.panels import Row, plot
from deploy.grafana.promql import INSTANCE, quantile, rate, share

_LOOKUPS = "recall_cache_requests_total"

CACHE = Row(
    "Cache",
    (
        plot(
            "Hit ratio",
            "Of the lookups in each tier, stale answers among the hits.",
            "percentunit",
            (share(_LOOKUPS, "tier", where='result=~"hit|stale"', of='result!="bypass"'), "{{tier}}"),
        ),
        plot("Lookups", "By tier and result.", "reqps", (rate(_LOOKUPS, "tier", "result"), "{{tier}} {{result}}")),
        plot(
            "Redis p99",
            "Of gets and puts.",
            "s",
            (quantile(0.99, "recall_cache_operation_seconds", "op", where=f'{INSTANCE},tier="redis"'), "{{op}}"),
        ),
        plot(
            "Breaker",
            "1 while Redis is not asked.",
            "none",
            (f"max by (instance) (recall_cache_breaker_open{{{INSTANCE}}})", "{{instance}}"),
        ),
        plot(
            "Coalesced",
            "Questions answered by an equal one in flight.",
            "reqps",
            (rate("recall_cache_coalesced_total", "instance"), "{{instance}}"),
        ),
        plot(
            "Refreshes",
            "Stale answers computed anew in the background; dropped where there was no room for it.",
            "ops",
            (rate("recall_cache_refreshes_total", "result"), "{{result}}"),
        ),
    ),
)
