"""The rows of the dashboard, in the order in which an on-call person reads them."""

from deploy.grafana.rows.cache import CACHE
from deploy.grafana.rows.engine import ENGINE
from deploy.grafana.rows.latency import LATENCY_ROW
from deploy.grafana.rows.process import PROCESS
from deploy.grafana.rows.results import RESULTS
from deploy.grafana.rows.served import SERVED
from deploy.grafana.rows.slo import SLO
from deploy.grafana.rows.traffic import TRAFFIC

ROWS = (SLO, TRAFFIC, LATENCY_ROW, ENGINE, CACHE, RESULTS, SERVED, PROCESS)

# Declared metrics that no panel shows, and why.
NOT_SHOWN = {
    "grpc_server_msg_received_total": "one a call, for all calls are unary: grpc_server_started_total shows it",
    "grpc_server_msg_sent_total": "one an OK call, for all calls are unary: grpc_server_handled_total shows it",
    "recall_ready": "the recording rule of Ready replicas adds the replicas that do not answer",
}

__all__ = ["NOT_SHOWN", "ROWS"]
