"""What is written of calls: which of them, what it says, and what it never says."""

import json
from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from recall_service.observability.call_log import MAX_FAILURES_PER_SECOND, CallLog
from recall_service.observability.logging import configure_logging
from recall_service.stubs.recall.v1 import recall_pb2
from tests.rpc.fake_backend import FakeBackend, by_history, running

FACTS = {"request_id": "r-1", "scene": "feed", "bundle": "main", "served_from": "engine", "items": 3, "proven": 2}


def facts() -> Mapping[str, str | int]:
    return FACTS


def never() -> Mapping[str, str | int]:
    raise AssertionError("looked up for a call that is not written about")


def lines_of(log: CallLog, *codes: str) -> list[Any]:
    with capture_logs() as lines:
        for code in codes:
            log.ended("Recall", code, 0.0123456, facts)
    return lines


def test_a_line_says_what_happened_to_a_call() -> None:
    log = CallLog(1.0, ["feed"], lambda: "0af7651916cd43dd8448eb211c80319c")
    assert lines_of(log, "OK") == [
        {
            "event": "call",
            "log_level": "info",
            "method": "Recall",
            "code": "OK",
            **FACTS,
            "ms": 12.346,
            "trace_id": "0af7651916cd43dd8448eb211c80319c",
        }
    ]


def test_without_a_trace_there_is_no_trace_id() -> None:
    assert "trace_id" not in lines_of(CallLog(1.0, ["feed"]), "OK")[0]


@pytest.mark.parametrize("code", ["OK", "CANCELLED"])
def test_calls_without_a_failure_are_sampled(code: str) -> None:
    draws = iter([0.0, 0.24, 0.25, 0.99])
    assert len(lines_of(CallLog(0.25, [], chance=lambda: next(draws)), *[code] * 4)) == 2


def test_a_sample_of_zero_writes_failures_alone_and_looks_up_nothing_else() -> None:
    log = CallLog(0.0, [])
    with capture_logs() as lines:
        for _ in range(100):
            log.ended("Recall", "OK", 0.01, never)
        log.ended("Recall", "INTERNAL", 0.01, facts)
    assert [(line["code"], line["log_level"]) for line in lines] == [("INTERNAL", "warning")]


def test_a_storm_of_failures_is_cut_short_and_counted() -> None:
    """What a client does wrong hides nothing that goes wrong here."""
    now = [7.0]
    log = CallLog(0.0, [], clock=lambda: now[0])
    storm = ["INVALID_ARGUMENT"] * 1000
    lines = lines_of(log, *storm, "INTERNAL")
    assert [line["code"] for line in lines] == ["INVALID_ARGUMENT"] * MAX_FAILURES_PER_SECOND + ["INTERNAL"]
    now[0] = 8.0
    first, second, internal = lines_of(log, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INTERNAL")
    assert first["suppressed"] == len(storm) - MAX_FAILURES_PER_SECOND
    assert "suppressed" not in second
    assert "suppressed" not in internal


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.usefixtures("logging_as_it_was")
def test_what_callers_write_stays_in_its_line(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", log_format)
    forged = {"request_id": "r\n2026-01-01 [error] all is lost", "scene": "a user's name"}
    CallLog(1.0, ["feed"]).ended("Recall", "OK", 0.01, lambda: forged)
    [line] = capsys.readouterr().err.splitlines()
    assert "other" in line
    assert "name" not in line.replace("logger_name", "")


class TestThroughTheServer:
    async def test_a_recall_and_a_batch(self) -> None:
        batch = recall_pb2.BatchRecallRequest(requests=[by_history(), by_history(scene="broken")])
        with capture_logs() as captured:
            async with running(FakeBackend(), call_log=CallLog(1.0, ["feed"])) as service:
                await service.stub.Recall(by_history(request_id="r-1", scene="feed", user_id="someone"))
                await service.stub.BatchRecall(batch, metadata=[("x-request-id", "b-1")])
                await service.stub.GetServingInfo(recall_pb2.GetServingInfoRequest())
        recall, several, info = (line for line in captured if line["event"] == "call")
        for line in (recall, several, info):
            assert line.pop("ms") > 0
        assert recall == {
            "event": "call",
            "log_level": "info",
            "method": "Recall",
            "code": "OK",
            "request_id": "r-1",
            "scene": "feed",
            "bundle": "main",
            "served_from": "local_cache",
            "items": 3,
            "proven": 2,
        }
        assert (several["method"], several["request_id"]) == ("BatchRecall", "b-1")
        assert (several["entries"], several["failed"]) == (2, 1)
        assert info["method"] == "GetServingInfo"

    async def test_a_failure_says_its_reason_and_no_item(self) -> None:
        with capture_logs() as captured:
            async with running(FakeBackend(), call_log=CallLog(0.0, [])) as service:
                with pytest.raises(grpc.aio.AioRpcError):
                    await service.stub.Recall(by_history("item-1", "", user_id="someone", request_id="r-2"))
        [line] = captured
        assert (line["code"], line["reason"], line["request_id"]) == ("INVALID_ARGUMENT", "INVALID_REQUEST", "r-2")
        assert "item-1" not in json.dumps(line)
        assert "someone" not in json.dumps(line)
