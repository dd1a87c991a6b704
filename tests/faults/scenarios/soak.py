"""Mixed traffic at about capacity, for long: what the process has of the machine must not grow."""

import asyncio
import random
import time

import grpc

from recall_service.serving.query import CacheMode
from tests.faults.calls import ask, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.report import FaultReport, Tally
from tests.faults.server_process import ServerProcess, Usage

_CALLERS = 12
_MAX_GROWTH = Usage(rss_bytes=24 * 1024**2, threads=2, descriptors=4)


async def soak(fleet: Fleet, *, full: bool) -> FaultReport:
    """Cancels, deadlines and every mode of the cache, over connections that come and go.

    After a first part that warms up pools and caches, memory, threads and descriptors stay within `_MAX_GROWTH`.
    """
    tally, server = Tally(fleet.oracle), await fleet.server(Role.MAIN)
    await _traffic(tally, server, seconds=30.0 if full else 1.5, seed=20)
    before = await asyncio.to_thread(server.usage)
    await _traffic(tally, server, seconds=300.0 if full else 3.5, seed=21)
    await fleet.settle(tally, server)
    after = await asyncio.to_thread(server.usage)
    growth = Usage(*(now - then for now, then in zip(after, before, strict=True)))
    for name, grown, bound in zip(Usage._fields, growth, _MAX_GROWTH, strict=True):
        tally.cases += 1
        if grown > bound:
            tally.leak(f"{name} grew by {grown}, over {bound}")
    tally.note(f"{after}, grown by {growth.rss_bytes / 1024**2:.1f} MiB, {growth.threads}, {growth.descriptors}")
    return tally.report()


async def _traffic(tally: Tally, server: ServerProcess, *, seconds: float, seed: int) -> None:
    chance, ends = random.Random(seed), time.monotonic() + seconds

    async def caller() -> None:
        while time.monotonic() < ends:
            async with connect(server.address) as stub:
                for _ in range(50):
                    await one_call(stub)
                    if time.monotonic() > ends:
                        return

    async def one_call(stub: object) -> None:
        question, mode = chance.choice(tally.oracle.questions), chance.choice(list(CacheMode))
        kind = chance.random()
        if kind < 0.1:
            outcome = await ask(stub, question, mode, cancel_after=chance.random() * 0.03)
            tally.judge(question, outcome, grpc.StatusCode.CANCELLED)
        elif kind < 0.2:
            outcome = await ask(stub, question, mode, timeout=chance.uniform(0.001, 0.03))
            tally.judge(question, outcome, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        else:
            tally.judge(question, await ask(stub, question, mode))

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))
