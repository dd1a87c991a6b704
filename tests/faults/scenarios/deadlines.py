"""Deadlines that pass at every stage: in the queue, in the prefill, in the decode, and while another's step sleeps."""

import asyncio
import random

import grpc

from recall_service.serving.query import CacheMode
from tests.faults.calls import ask, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.model_faults import Fault
from tests.faults.questions import fault_questions
from tests.faults.report import FaultReport, Tally

_CALLERS = 16
_EXPIRED = {stage: f'recall_deadline_expired_total{{stage="{stage}"}}' for stage in ("queue", "prefill", "decode")}

# A deadline that cannot be met is refused, at the gate, or passes.
_ALLOWED = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)


async def deadlines(fleet: Fleet, *, full: bool) -> FaultReport:
    """From 0.1 to 50 ms for ordinary questions, up to 0.4 s for those whose own prefill or decode sleeps for 0.3 s."""
    chance = random.Random(12)
    tally, server = Tally(fleet.oracle), await fleet.server(Role.MAIN)
    before = await asyncio.to_thread(server.metrics)
    pending = iter(range(4_000 if full else 250))
    sleepers = fault_questions(Fault.SLEEPS)

    async def caller() -> None:
        for number in pending:
            if number % 20 == 0:
                question, timeout = chance.choice(sleepers), chance.uniform(0.05, 0.4)
            else:
                question, timeout = chance.choice(fleet.oracle.questions), 10 ** chance.uniform(-4, -1.3)
            outcome = await ask(stub, question, chance.choice(list(CacheMode)), timeout=timeout)
            tally.judge(question, outcome, *_ALLOWED)

    async with connect(server.address) as stub:
        await asyncio.gather(*(caller() for _ in range(_CALLERS)))
        await fleet.settle(tally, server)
        question = fleet.oracle.questions[0]
        tally.judge(question, await ask(stub, question))
    after = await asyncio.to_thread(server.metrics)
    expired = (f"{after[name] - before[name]:g} in {stage}" for stage, name in _EXPIRED.items())
    tally.note(f"expired: {', '.join(expired)}")
    return tally.report()
