"""A server that is killed as `kill -9` does, and started again where it was."""

import asyncio
import random

import grpc

from recall_service.serving.query import CacheMode
from recall_service.stubs.recall.v1.recall_pb2 import SERVED_FROM_SHARED_CACHE
from tests.faults.calls import ask, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.report import FaultReport, Tally

_CALLERS = 8
_UNDER_LOAD_SECONDS = 0.4


async def kill(fleet: Fleet, *, full: bool) -> FaultReport:
    """Callers see UNAVAILABLE and nothing else, then right answers again, some of them from the cache that survived."""
    chance = random.Random(16)
    tally, server = Tally(fleet.oracle), await fleet.server(Role.REPLICA)

    async def caller() -> None:
        while True:
            question = chance.choice(fleet.oracle.questions)
            outcome = await ask(stub, question, CacheMode.USE)
            tally.judge(question, outcome, grpc.StatusCode.UNAVAILABLE)
            if outcome.code is not grpc.StatusCode.OK:
                return

    for _ in range(5 if full else 1):
        async with connect(server.address) as stub:
            callers = [asyncio.create_task(caller()) for _ in range(_CALLERS)]
            await asyncio.sleep(_UNDER_LOAD_SECONDS)
            await asyncio.to_thread(server.kill)
            await asyncio.gather(*callers)
        address = server.address
        await asyncio.to_thread(server.start)
        tally.check(server.address == address, f"started again on {server.address}, it was on {address}")
        async with connect(server.address) as stub:
            outcomes = []
            for question in fleet.oracle.questions:
                outcomes.append(await ask(stub, question, CacheMode.USE))
                tally.judge(question, outcomes[-1])
            shared = sum(
                outcome.answer.served_from == SERVED_FROM_SHARED_CACHE
                for outcome in outcomes
                if outcome.answer is not None
            )
            tally.check(shared > 0, "no answer came from the cache that survived")
            tally.note(f"{shared} of {len(outcomes)} answers came from the cache that survived")
            await fleet.settle(tally, server)
    return tally.report()
