"""Two replicas with different catalogues of one bundle behind one Redis, as in the middle of a rolling swap."""

import asyncio
import random

from recall_service.serving.query import CacheMode
from recall_service.stubs.recall.v1.recall_pb2 import SERVED_FROM_SHARED_CACHE
from tests.faults.calls import ask, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.report import FaultReport, Tally

_CALLERS = 8


async def versions(fleet: Fleet, *, full: bool) -> FaultReport:
    """Every answer is right for exactly the catalogue that it names, and each replica names its own."""
    chance = random.Random(17)
    tally = Tally(fleet.oracle)
    servers = [await fleet.server(role) for role in (Role.REPLICA, Role.OTHER_CATALOG)]
    pending = iter(range(10_000 if full else 300))
    named: set[tuple[int, str]] = set()
    num_shared = 0

    async def caller() -> None:
        nonlocal num_shared
        for _ in pending:
            replica, question = chance.randrange(len(stubs)), chance.choice(fleet.oracle.questions)
            outcome = await ask(stubs[replica], question, chance.choice((CacheMode.USE, CacheMode.REFRESH)))
            tally.judge(question, outcome)
            if outcome.answer is not None:
                named.add((replica, outcome.answer.catalog_version))
                num_shared += outcome.answer.served_from == SERVED_FROM_SHARED_CACHE

    async with connect(servers[0].address) as one, connect(servers[1].address) as other:
        stubs = (one, other)
        await asyncio.gather(*(caller() for _ in range(_CALLERS)))
        await fleet.settle(tally, *servers)
    tally.check(len(named) == len({version for _, version in named}) == 2, f"versions by replica: {named}")
    tally.check(num_shared > 0, "no answer came from the shared cache")
    tally.note(f"{num_shared} answers from the shared cache")
    return tally.report()
