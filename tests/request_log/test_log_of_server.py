"""Calls over a real connection, and what the log says of them."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from pydantic import SecretStr

from recall_service import __version__
from recall_service.app import Serving, serve
from recall_service.client import AsyncRecallClient, RecallResult
from recall_service.errors import SettingsError
from recall_service.request_log.reader import read_log
from recall_service.request_log.user_ids import user_id_rule
from recall_service.stubs.recall.v1 import recall_pb2
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall
from tests.request_log.recalls import Counts, make_files, make_log
from tests.rpc.fake_backend import FakeBackend, Running, by_history, by_prompt, running, until
from tests.serving.bundles import write_bundle
from tests.serving_here import small_settings
from tests.test_app import while_serving

ASKED: dict[str, Any] = {
    "user_id": "u",
    "num_items": 5,
    "filter": recall_pb2.Filter(predicates=[{"attribute": "price", "range": {"at_most": {"number": 9.5}}}]),
    "exclude_item_ids": ["z"],
    "exclude_history": True,
}


class Logged:
    """A server with a log; `records` are there once it has stopped."""

    service: Running
    records: list[LoggedRecall]


@asynccontextmanager
async def logged(directory: Path, backend: FakeBackend, **settings: Any) -> AsyncIterator[Logged]:
    found = Logged()
    log = make_log(make_files(directory), counts := Counts())
    async with running(backend, recall_log=log, **settings) as found.service:
        yield found
    await asyncio.to_thread(log.close)
    assert counts.dropped == 0
    found.records = list(read_log(directory))


async def test_a_recall_is_logged_with_its_answer(tmp_path: Path) -> None:
    before = time.time()
    async with logged(tmp_path, FakeBackend()) as found:
        response = await found.service.stub.Recall(by_history("x", "y", **ASKED), timeout=10)
    (record,) = found.records
    assert before - 1 < record.arrival_time.ToNanoseconds() / 1e9 < time.time() + 1
    assert record.request == by_history("x", "y", **ASKED, request_id=response.request_id)
    assert 9 < record.deadline_seconds < 11
    assert (record.status_code, record.error_reason, record.in_batch) == (0, "", False)
    assert 0 < record.total_seconds < 5
    assert record.server_version == __version__
    answer = record.answer
    assert list(answer.item_ids) == [item.item_id for item in response.items]
    assert list(answer.scores) == [item.score for item in response.items]
    same = ("proven_count", "served_from", "completeness", "bundle", "bundle_version", "catalog_version")
    for name in (*same, "score_space", "beam_width", "unknown_history_items", "unknown_excluded_items", "timings"):
        assert getattr(answer, name) == getattr(response, name) != type(getattr(response, name))()


async def test_refusals_and_failures_are_logged(tmp_path: Path) -> None:
    async with logged(tmp_path, FakeBackend(), serving=False) as found:
        for request in (by_history(), None, by_prompt(), by_history(bundle="other"), by_history(scene="broken")):
            if request is None:
                await found.service.server.mark_serving()
                continue
            with pytest.raises(grpc.aio.AioRpcError):
                await found.service.stub.Recall(request)
    ends = [(record.status_code, record.error_reason) for record in found.records]
    assert ends == [(3, "INVALID_REQUEST"), (5, "UNKNOWN_VERSION"), (13, "INTERNAL")]
    for record in found.records:
        assert record.request.request_id
        assert not record.HasField("answer")
        assert not record.HasField("deadline_seconds")


@pytest.mark.parametrize("in_batch", [False, True], ids=["alone", "in a batch"])
async def test_callers_that_leave_are_logged(in_batch: bool, tmp_path: Path) -> None:
    backend = FakeBackend(gate=asyncio.Event())
    async with logged(tmp_path, backend) as found:
        stub, request = found.service.stub, by_history()
        method, message = stub.Recall, request
        if in_batch:
            method, message = stub.BatchRecall, recall_pb2.BatchRecallRequest(requests=[request])
        call = method(message)
        await backend.entered.wait()
        call.cancel()
        await until(lambda: backend.num_cancelled == 1)
        with pytest.raises(grpc.aio.AioRpcError):
            await method(message, timeout=0.9)  # from 1 s on, the wire rounds up: CANCELLED may come first
        await until(lambda: backend.num_cancelled == 2)
    ends = [(record.status_code, record.error_reason, record.in_batch) for record in found.records]
    assert ends == [(1, "CANCELLED", in_batch), (4, "DEADLINE_EXPIRED", in_batch)]


async def test_the_entries_of_a_batch_are_logged_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    requests = [by_history(request_id="first"), by_history("", num_items=999), by_history(scene="broken")]
    batch = recall_pb2.BatchRecallRequest(requests=requests)
    async with logged(tmp_path, FakeBackend()) as found:
        with caplog.at_level(logging.CRITICAL, logger="recall_service"):
            await found.service.stub.BatchRecall(batch, metadata=(("x-request-id", "b"),), timeout=10)
            with pytest.raises(grpc.aio.AioRpcError):
                await found.service.stub.BatchRecall(recall_pb2.BatchRecallRequest())
    records = {record.request.request_id: record for record in found.records}
    assert {name: record.status_code for name, record in records.items()} == {"first": 0, "b-1": 3, "b-2": 13}
    assert all(record.in_batch and 9 < record.deadline_seconds < 11 for record in found.records)
    assert len(records["first"].answer.item_ids) == 3


async def test_the_service_logs_counts_and_flushes_upon_sigterm(tmp_path: Path) -> None:
    bundle, log = write_bundle(tmp_path / "tiny"), tmp_path / "log"
    results: list[RecallResult] = []
    exposed: list[str] = []

    async def visit(serving: Serving) -> None:
        async with AsyncRecallClient(serving.address) as client:
            asked = {"history": ["item-001"], "user_id": "jane.doe", "scene": "feed"}
            results.extend([await client.recall(**asked) for _ in range(3)])
        exposed.append(await asyncio.to_thread(lambda: urlopen(serving.metrics_url).read().decode()))

    key = SecretStr("0123456789abcdef")
    hashed = {"request_log_user_ids": "hash", "request_log_hash_key": key}
    await while_serving(small_settings(bundle, request_log_dir=log, request_log_sample=1, **hashed), visit)
    for result in ("written", "sampled_out", "dropped"):
        assert f'recall_request_log_records_total{{result="{result}"}}' in exposed[0]
    records = list(read_log(log))
    assert [record.request.request_id for record in records] == [result.request_id for result in results]
    served_from = [recall_pb2.ServedFrom.Name(record.answer.served_from) for record in records]
    assert served_from == ["SERVED_FROM_ENGINE", "SERVED_FROM_LOCAL_CACHE", "SERVED_FROM_LOCAL_CACHE"]
    assert list(records[0].answer.scores) == [item.score for item in results[0].items]
    assert {record.request.user_id for record in records} == {user_id_rule("hash", b"0123456789abcdef")("jane.doe")}
    assert "request-log" not in [thread.name for thread in threading.enumerate()]


async def test_a_service_without_a_directory_to_log_to_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    resolved = small_settings(write_bundle(tmp_path / "tiny"), request_log_dir=tmp_path / "file")
    with pytest.raises(SettingsError, match=r"request_log_dir: .*file cannot be written to"):
        await serve(resolved, lambda _: pytest.fail("it serves"))
