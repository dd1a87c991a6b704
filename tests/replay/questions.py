"""Questions to replay, and targets that do as a test says."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recall_service.replay.asked import Answered, Asked
from recall_service.replay.outcome import Outcome
from recall_service.replay.run import Ending, RunSettings, run_replay
from recall_service.replay.schedule import Scheduled
from recall_service.replay.target import Reply, Target
from recall_service.replay.totals import RunningTotals
from recall_service.stubs.recall.v1 import recall_pb2

ANSWER = Answered(
    item_ids=("b", "ä"),
    scores=(-0.1, -2.0 / 3),
    proven_count=1,
    short_reason="BEAM_TOO_NARROW",
    served_from="ENGINE",
    bundle_version="m1",
    catalog_version="c7",
)


def make_asked(index: int = 0, *, history: Sequence[str] = ("a",), scene: str = "feed", **fields: Any) -> Asked:
    request = recall_pb2.RecallRequest(history=recall_pb2.ItemHistory(item_ids=history), scene=scene)
    return Asked(**{"index": index, "request": request, "arrival_seconds": float(index), **fields})


def many(number: int, **fields: Any) -> Iterator[Asked]:
    return (make_asked(index, **fields) for index in range(number))


class FakeTarget:
    """Answers after what `reply` waits for; remembers what it was asked, with which deadline, and what was given up."""

    def __init__(self, reply: Callable[[Asked], Any] | None = None) -> None:
        self._reply = reply
        self.asked: list[Asked] = []
        self.timeouts: list[float] = []
        self.num_cancelled = 0
        self.in_flight = self.most_in_flight = 0

    async def open(self) -> str:
        return "a fake"

    async def ask(self, asked: Asked, timeout_seconds: float) -> Reply:
        self.asked.append(asked)
        self.timeouts.append(timeout_seconds)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            reply = None if self._reply is None else await self._reply(asked)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.in_flight -= 1
        return reply or Reply("OK", answer=ANSWER)

    async def close(self) -> None:
        pass


async def replay(
    scheduled: Iterator[Scheduled], target: Target, stop: asyncio.Event | None = None, **settings: Any
) -> tuple[Ending, list[Outcome], RunningTotals]:
    outcomes: list[Outcome] = []
    totals = RunningTotals()
    ending = await run_replay(
        scheduled, target, outcomes.append, RunSettings(**settings), totals, stop or asyncio.Event()
    )
    return ending, outcomes, totals
