"""Traffic: who asks how much, and what becomes of it."""

from deploy.grafana.panels import Row, plot
from deploy.grafana.promql import QUESTION, rate, total

_QUESTIONS = "recall_request_duration_seconds_count"

TRAFFIC = Row(
    "Traffic",
    (
        plot(
            "Questions by scene",
            "Entries of batches count one by one.",
            "reqps",
            (rate(_QUESTIONS, "scene", where=QUESTION), "{{scene}}"),
            is_stacked=True,
        ),
        plot(
            "Questions by outcome",
            "ok was searched for, cached was not, short holds fewer items than asked for, error got no answer.",
            "reqps",
            (rate(_QUESTIONS, "outcome", where=QUESTION), "{{outcome}}"),
            is_stacked=True,
        ),
        plot(
            "Calls by code",
            "gRPC status of calls that ended; codes that do not occur are left out.",
            "reqps",
            (f"{rate('grpc_server_handled_total', 'grpc_code')} > 0", "{{grpc_code}}"),
        ),
        plot(
            "Calls by method",
            "Calls that began.",
            "reqps",
            (rate("grpc_server_started_total", "grpc_method"), "{{grpc_method}}"),
        ),
        plot(
            "Rejected",
            "Questions refused before any work.",
            "reqps",
            (rate("recall_rejected_total", "reason"), "{{reason}}"),
        ),
        plot(
            "In flight",
            "Questions being searched now.",
            "none",
            (total("recall_inflight_requests", "instance"), "{{instance}}"),
        ),
    ),
)
