"""A real Prometheus scrapes the real service under mixed traffic: every panel has something to show."""

import asyncio
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana.dashboard import dashboard
from deploy.grafana.promql import fill_in
from deploy.grafana.rows import ROWS
from deploy.prometheus.local import LocalPrometheus, running_prometheus
from recall_service.client import AsyncRecallClient, RecallClientError
from recall_service.config import Settings
from tests.redis_server import RedisServer, find_servers
from tests.serving.bundles import write_bundle
from tests.serving_here import serving_here

TRAFFIC_SECONDS = 9.0
RATE_SECONDS = 4  # what $__rate_interval stands for: four scrapes

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus: `apt-get install prometheus` brings it"
)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    server = RedisServer(find_servers()["valkey-server"], tmp_path)
    server.start()
    yield server.url
    server.stop()


async def ask_in_every_way(address: str, seconds: float) -> set[str]:
    """Traffic of every outcome for so long. Returns the outcomes and codes that callers met."""
    met: set[str] = set()
    ends = time.monotonic() + seconds
    turn = 0
    async with AsyncRecallClient(address) as client:

        async def ask(history: list[str], **question: Any) -> None:
            try:
                answer = await client.recall(history=history, **question)
            except RecallClientError as error:
                met.add(error.code.name)
            else:
                met.add(answer.short_reason or answer.served_from)

        while time.monotonic() < ends:
            turn += 1
            fresh = [f"item-{turn % 50:03d}", f"item-{turn * 7 % 50:03d}", f"item-{turn * 13 % 50:03d}"]
            await asyncio.gather(
                *(ask(fresh, scene="feed") for _ in range(2)),  # equal questions at once: one is computed
                ask(fresh, scene="search", cache="bypass"),
                ask([*fresh, "gone"], scene="mail", num_items=64, beam_width=64),  # more than there are: short
                ask(["item-001"], scene="feed"),  # cached from the second time on
                ask([], scene="feed"),  # malformed
                ask(fresh, bundle="nobody"),
                ask(
                    fresh, timeout=(turn % 8 + 1) / 1000, cache="bypass"
                ),  # its deadline passes, as a rule in the engine
            )
            await asyncio.sleep(0.02)
    return met


def finite_values(prometheus: LocalPrometheus, expr: str, began: float) -> list[float]:
    found = prometheus.query_range(fill_in(expr, RATE_SECONDS), began, time.time(), 1)
    return [value for series in found for _, value in series.values if math.isfinite(value)]


async def test_every_panel_shows_something_of_real_traffic(tmp_path: Path, redis_url: str) -> None:
    began = time.time()
    settings = Settings(
        bundles=(write_bundle(tmp_path / "tiny"),),
        port=0,
        metrics_port=0,
        admin_port=0,
        drain_notice_seconds=0,
        max_rows=64,
        max_prompt_tokens=64,
        max_context_tokens=640,
        redis_url=redis_url,
        call_log_sample=0,
    )
    async with serving_here(settings) as serving:
        with running_prometheus(tmp_path, serving.metrics_url.split("/")[2]) as prometheus:
            met = await ask_in_every_way(serving.address, TRAFFIC_SECONDS)
            empty, rules, tells = await asyncio.to_thread(look, prometheus, began)
    assert met >= {
        "ENGINE",
        "LOCAL_CACHE",
        "CATALOG_EXHAUSTED",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "DEADLINE_EXCEEDED",
    }
    assert empty == ["GPU memory"]  # the model lives on the CPU here
    assert {rule["name"]: rule["lastError"] for rule in rules if rule["health"] != "ok"} == {}
    firing = {rule["name"] for rule in rules if rule.get("state") == "firing"}
    # Up to an eighth of the calls ran out of time, on purpose; the service itself is well.
    assert "RecallAvailabilityBudgetBurnsFast" in firing
    assert not firing & {"RecallNoReadyReplica", "RecallNoTraffic", "RecallCacheBreakerOpen", "RecallCatalogStale"}
    assert tells["ready"] == [1.0]
    assert all(0.006 < share <= 1 / 8 for share in tells["failed"])
    assert tells["versions"] == 2


def look(prometheus: LocalPrometheus, began: float) -> tuple[list[str], list[dict[str, Any]], dict[str, Any]]:
    """Titles of panels that show nothing, all rules, and what some expressions say."""
    empty = [
        panel.title
        for row in ROWS
        for panel in row.panels
        if not all(finite_values(prometheus, query.expr, began) for query in panel.queries)
    ]
    tells = {
        "ready": [series.values[0][1] for series in prometheus.query("job:recall_ready_replicas:sum")],
        "failed": [series.values[0][1] for series in prometheus.query("job:recall_failed_calls:ratio_rate30d")],
        "versions": sum(len(prometheus.query(mark["expr"])) for mark in dashboard()["annotations"]["list"]),
    }
    return empty, prometheus.rules(), tells
