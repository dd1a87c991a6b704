"""The harness sees what it is there to see: wrong answers, leaks and calls that hang."""

import asyncio
from collections.abc import Iterable

import grpc
import pytest

from tests.faults.calls import PATIENCE_SECONDS, Outcome, ask, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.model_faults import Fault
from tests.faults.oracle import Oracle
from tests.faults.questions import fault_questions
from tests.faults.report import Tally
from tests.faults.run import run_scenarios


def misled(oracle: Oracle, **changes: object) -> Oracle:
    """An oracle that is wrong about every answer."""
    return Oracle({asked: right._replace(**changes) for asked, right in oracle.rights.items()}, oracle.questions)


async def answers(fleet: Fleet) -> list[Outcome]:
    server = await fleet.server(Role.MAIN)
    async with connect(server.address) as stub:
        return [await ask(stub, question) for question in fleet.oracle.questions]


def judged(oracle: Oracle, fleet: Fleet, outcomes: Iterable[Outcome]) -> Tally:
    tally = Tally(oracle)
    for question, outcome in zip(fleet.oracle.questions, outcomes, strict=False):
        tally.judge(question, outcome)
    return tally


async def test_an_oracle_that_is_wrong_finds_every_answer_wrong(fleet: Fleet) -> None:
    outcomes = await answers(fleet)
    assert judged(fleet.oracle, fleet, outcomes).report().is_clean
    right = next(iter(fleet.oracle.rights.values()))
    for changes in ({"item_ids": ("item-007",)}, {"scores": right.scores[:1] - 1.0}, {"unknown_history_items": 9}):
        assert judged(misled(fleet.oracle, **changes), fleet, outcomes).wrong == len(outcomes)


async def test_the_answer_to_another_question_is_wrong(fleet: Fleet) -> None:
    first, *others = await answers(fleet)
    tally = judged(fleet.oracle, fleet, [*others, first])
    assert tally.wrong == tally.cases == len(fleet.oracle.questions)


async def test_an_answer_of_a_version_that_nobody_serves_is_wrong(fleet: Fleet) -> None:
    outcome, *_ = await answers(fleet)
    outcome.answer.catalog_version = "c0"
    assert judged(fleet.oracle, fleet, [outcome]).wrong == 1


async def test_what_calls_under_way_hold_is_a_leak_until_they_end(fleet: Fleet) -> None:
    """The model hangs, so that no pause of the machine outlasts the calls: the watchdog ends them after a second."""

    def missed(leaks: list[str]) -> list[str]:
        wanted = ("recall_inflight_requests = ", "12 calls have not ended", ".num_used == 0")
        return [held for held in wanted if not any(held in leak for leak in leaks)]

    server = await fleet.server(Role.MAIN)
    async with connect(server.address) as stub:
        calls = [asyncio.create_task(ask(stub, fault_questions(Fault.HANGS)[0])) for _ in range(12)]
        leaks = await asyncio.to_thread(server.leaks, 0.0)
        while missed(leaks) and not any(call.done() for call in calls):
            leaks = await asyncio.to_thread(server.leaks, 0.0)
        await asyncio.gather(*calls)
        async with asyncio.timeout(
            PATIENCE_SECONDS
        ):  # the step itself goes on; the next test needs a server that is well
            while (await ask(stub, fleet.oracle.questions[0])).code is not grpc.StatusCode.OK:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert not missed(leaks), leaks
    tally = Tally(fleet.oracle)
    await fleet.settle(tally, server)
    assert tally.report().is_clean


@pytest.mark.parametrize(
    ("code", "seconds"),
    [(grpc.StatusCode.OK, 2.6), (grpc.StatusCode.DEADLINE_EXCEEDED, 2.0), (None, 7.0)],
    ids=["late", "in vain", "never"],
)
async def test_a_call_that_ends_late_or_in_vain_hung(
    fleet: Fleet, code: grpc.StatusCode | None, seconds: float
) -> None:
    tally = judged(fleet.oracle, fleet, [Outcome(code, seconds, timeout=2.0)])
    assert (tally.wrong, tally.hung) == (0, 1)


def test_a_code_that_is_not_allowed_is_wrong(fleet: Fleet) -> None:
    unavailable = Outcome(grpc.StatusCode.UNAVAILABLE, 0.1, timeout=2.0)
    question, tally = fleet.oracle.questions[0], Tally(fleet.oracle)
    tally.judge(question, unavailable, grpc.StatusCode.UNAVAILABLE)
    assert tally.report().is_clean
    tally.judge(question, unavailable, grpc.StatusCode.CANCELLED)
    assert (tally.wrong, tally.hung) == (1, 0)


def test_a_scenario_that_there_is_not_is_refused_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="'cancel' is no scenario; choose from cancels, "):
        run_scenarios(only=["cancel"])
