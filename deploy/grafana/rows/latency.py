"""Latency: how long answers take, and which stage takes it."""

from deploy.grafana.panels import Panel, Query, Row, plot
from deploy.grafana.promql import INSTANCE, QUESTION, quantile, rate
from deploy.prometheus.slo import LATENCY_SECONDS

_SECONDS = "recall_request_duration_seconds"
_STAGES = f'{INSTANCE},stage!="select"'  # one beside the other, so that they can be stacked

LATENCY_ROW = Row(
    "Latency",
    (
        Panel(
            title="Latency of answers",
            description=f"From question to answer, cached ones included. The objective allows {LATENCY_SECONDS} s.",
            unit="s",
            queries=tuple(
                Query(
                    quantile(level, _SECONDS, where=f'{QUESTION},outcome!="error"'),
                    f"p{level * 100:g}",
                    has_exemplars=level == 0.99,
                )
                for level in (0.5, 0.9, 0.99)
            ),
        ),
        Panel(
            title="Spread of searched answers",
            description="Answers a second in each bucket of the histogram, cached ones left out.",
            unit="s",
            kind="heatmap",
            queries=(Query(rate(f"{_SECONDS}_bucket", "le", where=f'{QUESTION},outcome=~"ok|short"'), "{{le}}"),),
        ),
        plot(
            "p99 by outcome",
            "Cached answers have to stay far below searched ones.",
            "s",
            (quantile(0.99, _SECONDS, "outcome", where=QUESTION), "{{outcome}}"),
        ),
        plot(
            "p99 of calls",
            "From the start of a call to its end, decoding and encoding included.",
            "s",
            (quantile(0.99, "grpc_server_handling_seconds", "grpc_method"), "{{grpc_method}}"),
        ),
        plot(
            "Time by stage",
            "Seconds spent in each stage, every second: where the time goes. Selection is a part of decode.",
            "s",
            (rate("recall_stage_duration_seconds_sum", "stage", where=_STAGES), "{{stage}}"),
            is_stacked=True,
        ),
        plot(
            "p99 by stage",
            "A queue that grows while decode stays flat is overload, not a slow model.",
            "s",
            (quantile(0.99, "recall_stage_duration_seconds", "stage"), "{{stage}}"),
        ),
        plot(
            "Deadlines expired",
            "Where questions were when their time ran out.",
            "reqps",
            (rate("recall_deadline_expired_total", "stage"), "{{stage}}"),
        ),
    ),
)
