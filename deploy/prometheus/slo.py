"""Service level objectives, and the rules that follow from them: error ratios over windows, and burn-rate alerts.

Ratios over long windows are ratios of averages of five-minute rates, so no rule ever reads 30 days of raw series. Which
windows and burn rates alert is from the Site Reliability Workbook, chapter 5. Knows no dashboard.
"""

from dataclasses import dataclass
from textwrap import dedent, indent

HEADER = "# Written by deploy/prometheus/slo.py from its objectives: change those, then run `make deploy-files`.\n"
BUDGET_DAYS = 30
WINDOWS = ("30m", "1h", "2h", "6h", "1d", "3d", f"{BUDGET_DAYS}d")  # beside 5m, of which they are made

_CALLS = 'grpc_method=~"Recall|BatchRecall"'
_ANSWERS = 'outcome!="error"'
_OUR_FAULT = "UNKNOWN|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|INTERNAL|UNAVAILABLE|DATA_LOSS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Of all `events`, a share of at most `budget` may be `bad`, over 30 days.

    events, bad: names in rules; rate_of_events, rate_of_bad: their rates over five minutes by job, in PromQL.
    subject: begins the name of the alerts. complaint: says in words what is wrong with bad events.
    """

    events: str
    bad: str
    rate_of_events: str
    rate_of_bad: str
    subject: str
    complaint: str
    budget: float

    def ratio(self, window: str) -> str:
        """Name of the recorded share of bad events over `window`, by job."""
        return f"job:recall_{self.bad}:ratio_rate{window}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Urgency:
    """How fast the budget may burn before somebody is told: (short window, long window, times the allowed rate)."""

    speed: str
    severity: str
    burns: tuple[tuple[str, str, float], ...]


LATENCY_SECONDS = 0.1  # has to be an edge of recall_request_duration_seconds

AVAILABILITY = Objective(
    events="calls",
    bad="failed_calls",
    rate_of_events=f"sum by (job) (rate(grpc_server_handled_total{{{_CALLS}}}[5m]))",
    rate_of_bad=f'sum by (job) (rate(grpc_server_handled_total{{{_CALLS},grpc_code=~"{_OUR_FAULT}"}}[5m]))',
    subject="Availability",
    complaint="calls fail by a fault of the service",
    budget=0.001,
)
LATENCY = Objective(
    events="answers",
    bad="slow_answers",
    rate_of_events=f"sum by (job) (rate(recall_request_duration_seconds_count{{{_ANSWERS}}}[5m]))",
    rate_of_bad=(
        "job:recall_answers:rate5m - sum by (job) "
        f'(rate(recall_request_duration_seconds_bucket{{{_ANSWERS},le="{LATENCY_SECONDS}"}}[5m]))'
    ),
    subject="Latency",
    complaint=f"answers take longer than {LATENCY_SECONDS * 1000:g} ms",
    budget=0.01,
)
OBJECTIVES = (AVAILABILITY, LATENCY)

FAST = Urgency(speed="Fast", severity="page", burns=(("5m", "1h", 14.4), ("30m", "6h", 6)))
SLOW = Urgency(speed="Slowly", severity="ticket", burns=(("2h", "1d", 3), ("6h", "3d", 1)))


def slo_rules() -> str:
    """The text of rules/slo.yml."""
    groups = "\n".join(_recordings(objective) for objective in OBJECTIVES)
    alerts = "\n".join(_alert(objective, urgency) for objective in OBJECTIVES for urgency in (FAST, SLOW))
    return f"{HEADER}groups:\n{groups}\n  - name: slo-alerts\n    rules:\n{alerts}"


def _recordings(objective: Objective) -> str:
    events, bad = f"job:recall_{objective.events}:rate5m", f"job:recall_{objective.bad}:rate5m"
    rules = [
        (events, objective.rate_of_events),
        (bad, objective.rate_of_bad),
        (objective.ratio("5m"), f"{bad} / {events}"),
        *(
            (objective.ratio(window), f"avg_over_time({bad}[{window}]) / avg_over_time({events}[{window}])")
            for window in WINDOWS
        ),
    ]
    lines = "".join(f"      - record: {name}\n        expr: {expr}\n" for name, expr in rules)
    return f"  - name: slo-{objective.subject.lower()}\n    rules:\n{lines}"


def _alert(objective: Objective, urgency: Urgency) -> str:
    burns = "\nor\n".join(
        f"(\n  {objective.ratio(short)} > {times} * {objective.budget}\n"
        f"  and {objective.ratio(long)} > {times} * {objective.budget}\n)"
        for short, long, times in urgency.burns
    )
    name = f"Recall{objective.subject}BudgetBurns{urgency.speed}"
    text = dedent(f"""\
        - alert: {name}
          expr: |
            {{burns}}
          labels:
            severity: {urgency.severity}
          annotations:
            summary: "{{{{ $labels.job }}}}: the {objective.subject.lower()} budget burns {urgency.speed.lower()}"
            description: >-
              {{{{ $value | humanizePercentage }}}} of {objective.events} in the shorter window are bad:
              {objective.complaint}; allowed are {objective.budget * 100:g} % over {BUDGET_DAYS} days.
            runbook_url: docs/runbooks.md#{name.lower()}
        """)
    return indent(text.replace("{burns}", burns.replace("\n", "\n    ")), " " * 6)
