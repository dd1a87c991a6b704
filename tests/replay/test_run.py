"""An open loop: what is sent when, what is measured of it, and how a run ends before its time."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from recall_service.errors import ReplayError
from recall_service.replay.asked import Asked
from recall_service.replay.outcome import Outcome
from recall_service.replay.run import RunSettings, run_replay
from recall_service.replay.schedule import as_fast_as_possible, fixed_rate
from recall_service.replay.target import Reply
from recall_service.replay.totals import RunningTotals
from tests.replay.questions import ANSWER, FakeTarget, many, replay


def stalling(start: float, end: float) -> FakeTarget:
    """Answers in 1 ms, one after another, but not at all from `start` to `end` seconds after it was first asked."""
    began: list[float] = []

    async def reply(asked: Asked) -> None:
        now = time.monotonic()
        began.append(now)
        await asyncio.sleep(end - (now - began[0]) if start <= now - began[0] < end else 0.001)

    return FakeTarget(reply)


def percentile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[int(share * len(seconds))]


async def test_a_stall_shows_in_the_latency_of_every_question_it_kept_waiting() -> None:
    """A loop that waited for answers before it asked on would have sent one question during the stall."""
    ending, outcomes, _ = await replay(fixed_rate(200)(many(400)), stalling(0.5, 1.5))
    assert ending.is_complete
    assert len(outcomes) == 400
    latencies = [outcome.latency_seconds for outcome in outcomes]
    assert percentile(latencies, 0.99) > 0.95
    # Five milliseconds apart, the questions of the stall waited for what was left of it.
    assert all(sum(latency > left for latency in latencies) >= 200 * (1 - left) - 10 for left in (0.1, 0.5, 0.9))


async def test_with_a_cap_only_the_latency_from_the_intended_time_shows_the_stall() -> None:
    """The cap closes the loop: all but four questions of the stall are sent after it, and are answered at once."""
    ending, outcomes, totals = await replay(fixed_rate(200)(many(400)), stalling(0.5, 1.5), max_in_flight=4)
    assert ending.is_complete
    assert percentile([outcome.service_seconds for outcome in outcomes], 0.98) < 0.1
    assert percentile([outcome.latency_seconds for outcome in outcomes], 0.98) > 0.9
    assert percentile([outcome.lag_seconds for outcome in outcomes], 0.98) > 0.9
    assert totals.num_waited_for_room > 0


async def test_questions_go_out_when_they_should() -> None:
    _, outcomes, totals = await replay(fixed_rate(500)(many(1_000)), FakeTarget())
    assert [outcome.intended_seconds for outcome in outcomes] == [index / 500 for index in range(1_000)]
    for outcome in outcomes:
        assert outcome.intended_seconds <= outcome.sent_seconds <= outcome.done_seconds
    assert percentile([outcome.lag_seconds for outcome in outcomes], 0.5) < 0.05
    assert totals.asked_rate == pytest.approx(500)
    assert totals.achieved_rate == pytest.approx(500, rel=0.3)


async def test_the_cap_holds_when_as_fast_as_possible() -> None:
    async def reply(asked: Asked) -> None:
        await asyncio.sleep(0.02)

    target = FakeTarget(reply)
    ending, outcomes, totals = await replay(as_fast_as_possible()(many(200)), target, max_in_flight=7)
    assert (ending.failure, len(outcomes), target.most_in_flight) == ("", 200, 7)
    # There is no time at which they were to be sent: from the start of the run, most would be later than this.
    assert percentile([outcome.lag_seconds for outcome in outcomes], 0.9) < 0.05
    assert totals.num_waited_for_room == 0


async def test_an_outcome_says_what_was_asked_and_answered() -> None:
    async def reply(asked: Asked) -> Reply | None:
        return Reply("RESOURCE_EXHAUSTED", "OVERLOADED") if asked.index == 1 else None

    _, outcomes, totals = await replay(fixed_rate(1_000)(many(2, scene="mail")), FakeTarget(reply))
    assert [(outcome.index, outcome.scene, outcome.code, outcome.error_reason) for outcome in outcomes] == [
        (0, "mail", "OK", ""),
        (1, "mail", "RESOURCE_EXHAUSTED", "OVERLOADED"),
    ]
    assert [outcome.answer for outcome in outcomes] == [ANSWER, None]
    assert totals.codes == {"OK": 1, "RESOURCE_EXHAUSTED": 1}


@pytest.mark.parametrize(
    ("settings", "number"),
    [({}, 0), ({"warm_up_seconds": 0.1}, 50), ({"warm_up_questions": 30}, 30)],
    ids=["none", "seconds", "questions"],
)
async def test_warm_up_is_flagged_and_in_no_histogram(settings: dict[str, Any], number: int) -> None:
    async def reply(asked: Asked) -> None:
        await asyncio.sleep(0.5 if asked.index < number else 0)

    _, outcomes, totals = await replay(fixed_rate(500)(many(100)), FakeTarget(reply), **settings)
    assert sorted(outcome.index for outcome in outcomes if outcome.is_warm_up) == list(range(number))
    assert totals.latency_seconds(100) < 0.4
    assert totals.num_done == 100


async def test_what_is_given_up_is_flagged_unless_it_was_answered_before() -> None:
    async def reply(asked: Asked) -> None:
        await asyncio.sleep(3_600 if asked.index % 2 else 0)

    target = FakeTarget(reply)
    scheduled = as_fast_as_possible()(many(100, deadline_seconds=2.0))
    ending, outcomes, totals = await replay(scheduled, target, cancel_share=1.0)
    assert ending.is_complete
    given_up = [outcome for outcome in outcomes if outcome.was_cancelled]
    assert {outcome.index for outcome in given_up} >= set(range(1, 100, 2))
    assert {(outcome.code, outcome.answer) for outcome in given_up} == {("CANCELLED", None)}
    assert target.num_cancelled == totals.codes["cancelled on purpose"] == len(given_up) < 60
    assert 0.5 < percentile([outcome.service_seconds for outcome in given_up], 0.5) < 1.5
    assert max(outcome.service_seconds for outcome in given_up) < 2.5


@pytest.mark.parametrize(
    ("deadline", "given", "used"),
    [(None, None, 5.0), (0.3, None, 0.3), (0.3, 2.0, 2.0)],
    ids=["neither", "log", "flag"],
)
async def test_deadlines(deadline: float | None, given: float | None, used: float) -> None:
    target = FakeTarget()
    await replay(as_fast_as_possible()(many(1, deadline_seconds=deadline)), target, timeout_seconds=given)
    assert target.timeouts == [used]


async def test_an_interrupt_ends_with_what_was_done() -> None:
    async def reply(asked: Asked) -> None:
        if asked.index == 3:
            await asyncio.sleep(3_600)
        if asked.index == 10:
            stop.set()

    stop = asyncio.Event()
    target = FakeTarget(reply)
    ending, outcomes, _ = await replay(fixed_rate(100)(many(100_000)), target, stop)
    assert (ending.failure, ending.num_given_up, target.num_cancelled) == ("interrupted", 1, 1)
    assert 10 < len(target.asked) < 20
    assert [outcome.index for outcome in outcomes] == [asked.index for asked in target.asked if asked.index != 3]


async def test_a_target_that_went_away_ends_the_run() -> None:
    async def reply(asked: Asked) -> Reply | None:
        return Reply("UNAVAILABLE") if asked.index >= 20 else None

    ending, outcomes, _ = await replay(fixed_rate(200)(many(100_000)), FakeTarget(reply), unreachable_after_seconds=0.2)
    assert [outcome.code for outcome in outcomes[:20]] == ["OK"] * 20
    alone = [outcome.done_seconds - outcomes[19].done_seconds for outcome in outcomes[20:]]
    too_long = [seconds for seconds in alone[9:] if seconds > 0.2]  # after a pause of this machine, ten are needed
    assert 1 <= len(too_long) <= 2  # the first ends the run; another may be under way by then
    assert ending.failure == f"the target could not be reached for {too_long[0]:.1f} s; see whether it still runs"


async def test_a_server_that_says_it_is_not_ready_is_there() -> None:
    async def reply(asked: Asked) -> Reply:
        return Reply("UNAVAILABLE", "NOT_READY")

    ending, outcomes, _ = await replay(fixed_rate(500)(many(100)), FakeTarget(reply), unreachable_after_seconds=0.05)
    assert (ending.failure, len(outcomes)) == ("", 100)


async def test_a_short_outage_is_measured_not_fatal() -> None:
    async def reply(asked: Asked) -> Reply | None:
        return Reply("UNAVAILABLE") if 20 <= asked.index < 60 else None

    ending, outcomes, _ = await replay(fixed_rate(500)(many(100)), FakeTarget(reply), unreachable_after_seconds=0.5)
    assert ending.is_complete
    assert sum(outcome.code == "UNAVAILABLE" for outcome in outcomes) == 40


async def test_a_disk_that_refuses_ends_the_run() -> None:
    recorded: list[Outcome] = []

    def record(outcome: Outcome) -> None:
        if len(recorded) == 5:
            raise ReplayError("no space left")
        recorded.append(outcome)

    ending = await run_replay(
        fixed_rate(500)(many(100_000)), FakeTarget(), record, RunSettings(), RunningTotals(), asyncio.Event()
    )
    assert ending.failure == "no space left"
    assert len(recorded) == 5


async def test_a_source_that_breaks_off_ends_the_run_after_what_is_in_flight() -> None:
    def source() -> Iterator[Asked]:
        yield from many(3)
        raise ReplayError("line 4: damaged")

    async def reply(asked: Asked) -> None:
        await asyncio.sleep(0.05)

    ending, outcomes, _ = await replay(as_fast_as_possible()(source()), FakeTarget(reply))
    assert (ending.failure, ending.num_given_up) == ("line 4: damaged", 0)
    assert [outcome.index for outcome in outcomes] == [0, 1, 2]


async def test_a_fault_of_our_own_is_not_swallowed() -> None:
    async def reply(asked: Asked) -> None:
        raise KeyError("a bug")

    with pytest.raises(ExceptionGroup) as raised:
        await replay(as_fast_as_possible()(many(1)), FakeTarget(reply))
    assert raised.group_contains(KeyError)
