"""SLO and budget: whether anything is wrong at all, and how soon it matters."""

from deploy.grafana.panels import Panel, Query, Row
from deploy.prometheus.slo import AVAILABILITY, BUDGET_DAYS, LATENCY, Objective


def _budget_left(objective: Objective) -> Panel:
    return Panel(
        title=f"{objective.subject}: budget left",
        description=f"What is left of the error budget of {BUDGET_DAYS} days: {objective.complaint}.",
        unit="percentunit",
        kind="stat",
        queries=(Query(f"1 - {objective.ratio(f'{BUDGET_DAYS}d')} / {objective.budget}", "{{job}}"),),
        bounds=(0.25, 0.0),
    )


def _budget_burn(objective: Objective) -> Panel:
    return Panel(
        title=f"{objective.subject}: burn rate",
        description="How many times faster than allowed the budget burns. Pages at 14.4 over 5 minutes and 1 hour.",
        unit="short",
        queries=tuple(
            Query(f"{objective.ratio(window)} / {objective.budget}", f"{window} {{{{job}}}}")
            for window in ("5m", "1h", "6h")
        ),
        bounds=(6, 14.4),
    )


SLO = Row(
    "SLO and budget",
    (
        Panel(
            title="Ready replicas",
            description="Replicas that answer scrapes and whose health says SERVING.",
            unit="none",
            kind="stat",
            queries=(Query("job:recall_ready_replicas:sum", "{{job}}"),),
            bounds=(1.5, 0.5),
        ),
        _budget_left(AVAILABILITY),
        _budget_left(LATENCY),
        _budget_burn(AVAILABILITY),
        _budget_burn(LATENCY),
    ),
)
