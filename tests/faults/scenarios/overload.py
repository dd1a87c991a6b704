"""Ten times as many questions as can be answered, each with a deadline, asked whether or not others are answered."""

import asyncio
import random
import time
from collections import Counter

import grpc
import numpy as np

from tests.faults.calls import Outcome, ask, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.model_faults import Fault
from tests.faults.questions import fault_questions
from tests.faults.report import FaultReport, Tally

_OVERLOAD = 10
_TIMEOUT_SECONDS = 0.5
_CALLERS_AT_CAPACITY = 16
_MAX_RSS_GROWTH_BYTES = 32 * 1024**2
_RECOVERY_SECONDS = 2.0
_ALLOWED = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED)


async def overload(fleet: Fleet, *, full: bool) -> FaultReport:
    """Everybody is answered rightly or refused in time, memory stays flat, and two seconds later all is as before.

    Every prefill is slowed down to 50 ms, so that the engine is what is short of, and not the processor.
    """
    chance = random.Random(18)
    tally, server = Tally(fleet.oracle), await fleet.server(Role.MAIN)
    question = fault_questions(Fault.SLOW)[0]

    async def closed_loop(ends: float) -> None:
        while time.monotonic() < ends:
            tally.judge(question, await ask(stub, question))
            answered.append(time.monotonic())

    async def arrival() -> None:
        outcome = await ask(stub, question, timeout=_TIMEOUT_SECONDS)
        outcomes.append(outcome)
        tally.judge(question, outcome, *_ALLOWED)

    async with connect(server.address) as stub:
        answered: list[float] = []
        outcomes: list[Outcome] = []
        seconds = 3.0 if full else 1.0
        ends = time.monotonic() + seconds
        await asyncio.gather(*(closed_loop(ends) for _ in range(_CALLERS_AT_CAPACITY)))
        capacity = len(answered) / seconds
        before = await asyncio.to_thread(server.usage)

        started, seconds = time.monotonic(), 30.0 if full else 3.0
        next_arrival = started
        async with asyncio.TaskGroup() as arrivals:
            while next_arrival < started + seconds:
                await asyncio.sleep(max(0.0, next_arrival - time.monotonic()))
                arrivals.create_task(arrival())
                next_arrival += chance.expovariate(_OVERLOAD * capacity)
        growth = (await asyncio.to_thread(server.usage)).rss_bytes - before.rss_bytes
        if growth > _MAX_RSS_GROWTH_BYTES:
            tally.leak(f"{growth / 1024**2:.0f} MiB of memory during the overload")
        recovered = await ask(stub, question, timeout=_RECOVERY_SECONDS)
        tally.judge(question, recovered)
        await fleet.settle(tally, server)
    codes = Counter(outcome.code for outcome in outcomes)
    refused = [o.seconds for o in outcomes if o.code is grpc.StatusCode.RESOURCE_EXHAUSTED]
    tally.note(
        f"capacity {capacity:.0f} questions a second, {len(outcomes) / seconds:.0f} asked, "
        f"{codes[grpc.StatusCode.OK] / seconds:.0f} answered; refusals "
        f"{np.percentile(refused, 50) * 1000 if refused else 0:.0f} ms at p50, "
        f"{np.percentile(refused, 99) * 1000 if refused else 0:.0f} ms at p99; "
        f"{growth / 1024**2:.1f} MiB; recovered in {recovered.seconds:.2f} s"
    )
    return tally.report()
