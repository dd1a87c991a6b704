import asyncio
from collections.abc import Callable

import pytest

from recall_service.serving.cache.single_flight import SingleFlight


class Gate:
    """A computation that starts, waits to be opened, and then gives a result or an error."""

    def __init__(self, outcome: str | Exception = "answer") -> None:
        self.runs = 0
        self.opened = asyncio.Event()
        self._outcome = outcome

    async def __call__(self) -> str:
        self.runs += 1
        await self.opened.wait()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class Follows:
    count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def follows() -> Follows:
    return Follows()


@pytest.fixture
def flights(follows: Follows) -> SingleFlight[str]:
    return SingleFlight(on_follow=follows, is_own=lambda error: isinstance(error, KeyError))


async def start(flights: SingleFlight[str], *computations: Callable[[], object]) -> list[asyncio.Task[str]]:
    """Callers of the same key, in this order, all of them waiting when this returns."""
    tasks = [asyncio.create_task(flights.run(b"key", compute)) for compute in computations]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    return tasks


async def test_a_hundred_equal_calls_compute_once(flights: SingleFlight[str], follows: Follows) -> None:
    gate = Gate()
    tasks = await start(flights, *[gate] * 100)
    gate.opened.set()
    assert await asyncio.gather(*tasks) == ["answer"] * 100
    assert (gate.runs, follows.count) == (1, 99)


async def test_different_keys_do_not_wait_for_each_other(flights: SingleFlight[str]) -> None:
    slow, quick = Gate(), Gate("quick")
    [waiting] = await start(flights, slow)
    quick.opened.set()
    assert await flights.run(b"another key", quick) == "quick"
    slow.opened.set()
    await waiting


async def test_a_flight_is_over_when_it_has_landed(flights: SingleFlight[str]) -> None:
    gate = Gate()
    gate.opened.set()
    await flights.run(b"key", gate)
    await flights.run(b"key", gate)
    assert gate.runs == 2


async def test_a_failed_leader_keeps_its_error_and_one_follower_takes_over(
    flights: SingleFlight[str], follows: Follows
) -> None:
    leader, follower = Gate(ValueError("mine")), Gate()
    tasks = await start(flights, leader, *[follower] * 10)
    leader.opened.set()
    with pytest.raises(ValueError, match="mine"):
        await tasks[0]
    await asyncio.sleep(0.01)
    follower.opened.set()
    assert await asyncio.gather(*tasks[1:]) == ["answer"] * 10
    assert (follower.runs, follows.count) == (1, 9)


async def test_a_cancelled_leader_does_not_hurt_followers(flights: SingleFlight[str]) -> None:
    leader, follower = Gate(), Gate("from a follower")
    tasks = await start(flights, leader, follower, follower)
    tasks[0].cancel()
    follower.opened.set()
    assert await asyncio.gather(*tasks[1:]) == ["from a follower"] * 2
    assert tasks[0].cancelled()


async def test_a_cancelled_follower_disturbs_nobody(flights: SingleFlight[str]) -> None:
    gate = Gate()
    tasks = await start(flights, gate, gate, gate)
    tasks[1].cancel()
    await asyncio.sleep(0)
    gate.opened.set()
    assert await asyncio.gather(tasks[0], tasks[2]) == ["answer"] * 2
    assert tasks[1].cancelled()
    assert gate.runs == 1


async def test_a_follower_gives_up_at_its_own_deadline(flights: SingleFlight[str]) -> None:
    gate = Gate()
    [leader] = await start(flights, gate)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await flights.run(b"key", gate)
    gate.opened.set()
    assert await leader == "answer"


async def test_of_a_hundred_one_computes_when_the_leader_is_cancelled(
    flights: SingleFlight[str], follows: Follows
) -> None:
    leader, others = Gate(), Gate("from a follower")
    tasks = await start(flights, leader, *[others] * 99)
    tasks[0].cancel()
    await asyncio.sleep(0.01)
    others.opened.set()
    assert await asyncio.gather(*tasks[1:]) == ["from a follower"] * 99
    assert (leader.runs, others.runs, follows.count) == (1, 1, 98)


async def test_leaders_that_leave_one_after_the_other_do_not_let_all_compute(flights: SingleFlight[str]) -> None:
    """Callers with short deadlines go away; those with long ones still share one computation."""
    gate = Gate()
    tasks = await start(flights, *[gate] * 20)
    for task in tasks[:10]:
        task.cancel()
        await asyncio.sleep(0.001)
    gate.opened.set()
    assert await asyncio.gather(*tasks[10:]) == ["answer"] * 10
    assert gate.runs == 11  # ten that were cut short, and one


async def test_leaders_with_errors_of_their_own_do_not_let_all_compute(
    flights: SingleFlight[str], follows: Follows
) -> None:
    hurried, patient = [Gate(KeyError("mine")) for _ in range(3)], Gate()
    tasks = await start(flights, *hurried, *[patient] * 50)
    for gate, task in zip(hurried, tasks, strict=False):
        gate.opened.set()
        with pytest.raises(KeyError, match="mine"):
            await task
    await asyncio.sleep(0.01)
    patient.opened.set()
    assert await asyncio.gather(*tasks[3:]) == ["answer"] * 50
    assert (patient.runs, follows.count) == (1, 49)


@pytest.mark.parametrize("error", [KeyError(), ValueError()], ids=["its own", "a failure"])
async def test_who_takes_over_need_not_begin_anew(flights: SingleFlight[str], error: Exception) -> None:
    leader, whole, rest = Gate(error), Gate("whole"), Gate("rest")
    [led] = await start(flights, leader)
    follower = asyncio.create_task(flights.run(b"key", whole, rest))
    await asyncio.sleep(0)
    for gate in (leader, rest):
        gate.opened.set()
    assert await follower == "rest"
    assert whole.runs == 0
    assert led.exception() is error


async def test_a_leader_with_a_short_deadline_does_not_hurt_followers(flights: SingleFlight[str]) -> None:
    gate = Gate()

    async def hurried() -> str:
        async with asyncio.timeout(0.01):
            return await flights.run(b"key", gate)

    leader = asyncio.create_task(hurried())
    await asyncio.sleep(0)
    [follower] = await start(flights, gate)
    with pytest.raises(TimeoutError):
        await leader
    gate.opened.set()
    assert await follower == "answer"
    assert gate.runs == 2


async def test_a_leader_cancelled_as_its_result_arrives_leaves_nobody_waiting(flights: SingleFlight[str]) -> None:
    gate = Gate()
    tasks = await start(flights, gate, gate)
    gate.opened.set()
    tasks[0].cancel()  # after the computation can go on, before it has
    assert await asyncio.wait_for(tasks[1], 1) == "answer"
    assert await asyncio.wait_for(flights.run(b"key", gate), 1) == "answer"  # and the flight is over


async def test_failing_leaders_do_not_queue_up(flights: SingleFlight[str]) -> None:
    """After two failed leaders the rest compute side by side, and each gets the error of its own computation."""
    gates = [Gate(ValueError(str(caller))) for caller in range(6)]
    tasks = await start(flights, *gates)
    gates[0].opened.set()
    await asyncio.wait([tasks[0]])
    gates[1].opened.set()
    await asyncio.wait([tasks[1]])
    await asyncio.sleep(0.01)
    assert [gate.runs for gate in gates] == [1] * 6
    for gate in gates:
        gate.opened.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(error) for error in errors] == ["0", "1", "2", "3", "4", "5"]
