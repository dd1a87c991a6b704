"""Traces on their way out of the process: that they arrive, and that no collector can hold up a call."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from recall_service.app import Serving, open_tracing
from recall_service.client import AsyncRecallClient
from recall_service.config import Settings
from recall_service.observability import tracing as tracing_module
from recall_service.observability.tracing import Tracing
from tests.observability.collector import collector, hung_collector
from tests.rpc.fake_backend import FakeBackend, by_history, running
from tests.serving.bundles import write_bundle
from tests.serving_here import small_settings
from tests.test_app import while_serving
from tests.unpaused_clock import unpaused_clock

NUM_CALLS = 300


@pytest.fixture(autouse=True)
def _short_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """It overflows, and what is in it is sent at once."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")


@pytest.fixture(params=["hung", "down"])
def bad_collector(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        yield stack.enter_context(hung_collector()) if request.param == "hung" else "http://127.0.0.1:9"


async def test_what_a_server_is_told_to_trace_arrives(tmp_path: Path) -> None:
    with collector() as received:

        async def visit(serving: Serving) -> None:
            async with AsyncRecallClient(serving.address) as client:
                await client.recall(history=["item-001"])

        directory = write_bundle(tmp_path / "tiny")
        await while_serving(small_settings(directory, otlp_endpoint=received.url, trace_sample=1.0), visit)
    assert set(received.paths) == {"/v1/traces"}
    assert received.services == {"recall-service"}
    names = [span.name for span in received.spans]
    assert sorted(names) == sorted(
        [
            "recall.v1.RecallService/Recall",
            "cache",
            "prompt",
            "queue",
            "prefill",
            "level 0",
            "level 1",
            "level 2",
            "map",
        ]
    )
    assert len({span.trace_id for span in received.spans}) == 1
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in received.spans)


async def seconds_of_calls(tracing: Tracing | None) -> list[float]:
    async with running(FakeBackend(), tracer=tracing) as service:
        seconds = []
        with unpaused_clock() as clock:
            for _ in range(NUM_CALLS):
                started = clock()
                await service.stub.Recall(by_history())
                seconds.append(clock() - started)
    return sorted(seconds)


async def test_a_bad_collector_slows_no_call_and_no_end(bad_collector: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_module, "CLOSE_SECONDS", 0.5)
    monkeypatch.setattr(tracing_module, "EXPORT_SECONDS", 1.0)
    untraced = await seconds_of_calls(None)
    tracing = open_tracing(Settings(otlp_endpoint=bad_collector, trace_sample=1.0))
    assert tracing is not None
    traced = await seconds_of_calls(tracing)
    with unpaused_clock() as clock:
        started = clock()
        tracing.close()
        assert clock() - started < 1.0
    # A call that waited for the collector would take seconds.
    assert traced[NUM_CALLS // 2] < untraced[NUM_CALLS // 2] + 0.005
    assert traced[-1] < untraced[-1] + 0.2


def test_a_server_that_traces_nothing_needs_nothing_for_it() -> None:
    """Not by what is imported: redis imports it on its own account, where it is installed."""
    check = "import sys; sys.modules['opentelemetry'] = None; import recall_service.app"
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
