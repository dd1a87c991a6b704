"""The load that the service's benchmark makes, and a short run of it against real processes."""

import asyncio
import json
import time

import grpc
import pytest

from benchmarks import service, service_cached, service_overload
from benchmarks.service_load import Outcome, answers_per_second, latencies, send_at_rate
from benchmarks.service_servers import echo_server

QUESTIONS = [b"a", b"b", b"c"]


async def test_as_many_calls_as_asked_for_are_under_way_at_once() -> None:
    under_way = most = num_asked = 0

    async def ask(question: bytes) -> bytes:
        nonlocal under_way, most, num_asked
        under_way, num_asked = under_way + 1, num_asked + 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return question

    per_second = await answers_per_second(ask, QUESTIONS, seconds=0.2, concurrency=5)
    assert most == 5
    assert 0 < per_second * 0.2 <= num_asked < 110


async def test_calls_are_sent_at_their_times_whatever_becomes_of_those_before() -> None:
    sent: list[tuple[float, bytes]] = []

    async def ask(question: bytes) -> bytes:
        sent.append((time.perf_counter(), question))
        await asyncio.sleep(0.1)  # far longer than between two calls
        return question

    found = latencies(await send_at_rate(ask, QUESTIONS, seconds=0.3, rate=200, seed=1))
    assert 30 < len(sent) < 100
    assert [question for _, question in sent[:4]] == [b"a", b"b", b"c", b"a"]
    assert sent[-1][0] - sent[0][0] > 0.2
    assert 100 <= found.p50_ms <= found.p99_ms < 1_000


async def test_the_same_seed_gives_the_same_number_of_calls() -> None:
    async def ask(question: bytes) -> bytes:
        nonlocal num_asked
        num_asked += 1
        return question

    counts = []
    for seed in (1, 1, 2, 3):
        num_asked = 0
        await send_at_rate(ask, QUESTIONS, seconds=0.05, rate=2_000, seed=seed)
        counts.append(num_asked)
    assert counts[0] == counts[1]
    assert len(set(counts)) > 1


def test_parts_are_named_once_and_strangers_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert service.parts("cached,echo") == ["cached"]
    assert service.parts("echo") == ["echo"]
    with pytest.raises(SystemExit):
        service.main(["--only", "echo,overlord"])
    assert "'overlord' is none of echo, cached, overload" in capsys.readouterr().err


def test_cached_answers_are_measured_beside_an_echo_of_their_size(capsys: pytest.CaptureFixture[str]) -> None:
    service.main(["--only", "cached", "--rounds", "1", "--seconds", "0.2", "--concurrency", "4"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["settings"] == {"rounds": 1, "seconds": 0.2, "concurrency": 4, "overload_seconds": 30.0}
    assert 2_000 < found["answer_bytes"] < 5_000
    assert found["cached_qps"] > 0
    assert found["cached_ratio"] == pytest.approx(found["cached_qps"] / found["echo_qps"], abs=0.01)
    assert found["half_load_qps"] == pytest.approx(found["cached_qps"] / 2, abs=1)
    for name, half_load in (("cached", "cached_half_load"), ("busy", "busy_echo_half_load")):
        added = found[half_load]["p99_ms"] - found["echo_half_load"]["p99_ms"]
        assert found[f"{name}_p99_added_ms"] == pytest.approx(added, abs=0.01)


async def test_an_echo_is_busy_for_as_long_as_it_is_told() -> None:
    with echo_server(10, busy_us=20_000) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            ask = channel.unary_unary(service_cached.RECALL)
            await ask(b"")
            before = server.cpu_seconds
            answers = [await ask(b"") for _ in range(10)]
            cpu_seconds = server.cpu_seconds - before
    assert answers == [bytes(10)] * 10
    assert cpu_seconds >= 10 * 0.02


def outcomes(code: grpc.StatusCode, *seconds: float, since: float = 0.0) -> list[Outcome]:
    return [Outcome(since + position, since + position, taken, code) for position, taken in enumerate(seconds)]


def test_what_became_of_a_load_is_told_apart() -> None:
    answered = outcomes(grpc.StatusCode.OK, 0.1, 0.1, 0.1)
    refused = outcomes(grpc.StatusCode.RESOURCE_EXHAUSTED, 0.002, 0.002, 0.002, 0.002, 0.002)
    late = outcomes(grpc.StatusCode.DEADLINE_EXCEEDED, 0.5, 0.5)
    assert service_overload.summary([*answered, *refused, *late], seconds=2.0) == {
        "good_per_second": 1.5,
        "good_p99_ms": 100.0,
        "refused_share": 0.5,
        "reject_p99_ms": 2.0,
        "late_share": 0.2,
    }


def test_a_call_that_fails_otherwise_is_a_fault_of_the_run() -> None:
    with pytest.raises(AssertionError, match="INTERNAL"):
        service_overload.summary(outcomes(grpc.StatusCode.INTERNAL, 0.1), seconds=1.0)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(outcomes(grpc.StatusCode.OK, 0.1, 0.1, 0.1), 0.0, id="at once"),
        pytest.param(outcomes(grpc.StatusCode.OK, 0.3, 0.3, 0.1, since=7.0), 1.0, id="slow for two calls"),
        pytest.param(
            [*outcomes(grpc.StatusCode.OK, 0.1), *outcomes(grpc.StatusCode.RESOURCE_EXHAUSTED, 0.001, since=3.0)],
            3.0,
            id="refused late",
        ),
    ],
)
def test_recovery_lasts_to_the_last_call_that_is_not_as_usual(after: list[Outcome], expected: float) -> None:
    assert service_overload.recovery_seconds(after, usual_p99_ms=110.0) == expected
