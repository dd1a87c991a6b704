"""Callers that leave at random points, beside others that must be answered."""

import asyncio
import random

import grpc

from recall_service.serving.query import CacheMode
from tests.faults.calls import ask, ask_batch, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.report import FaultReport, Tally

_CALLERS = 12
_LONGEST_STAY_SECONDS = 0.06
_BATCH_LEN = 4


async def cancels(fleet: Fleet, *, full: bool) -> FaultReport:
    """Four of five calls are left, somewhere between the first microsecond and the answer; one of eight is a batch."""
    chance = random.Random(11)
    tally, server = Tally(fleet.oracle), await fleet.server(Role.MAIN)
    pending = iter(range(12_500 if full else 375))

    async def caller() -> None:
        for number in pending:
            questions, mode = chance.sample(fleet.oracle.questions, _BATCH_LEN), chance.choice(list(CacheMode))
            stay = None if number % 5 == 0 else chance.random() ** 2 * _LONGEST_STAY_SECONDS
            if number % 8 == 0:
                outcomes = await ask_batch(stub, questions, mode, cancel_after=stay)
            else:
                outcomes = [await ask(stub, questions[0], mode, cancel_after=stay)]
            for question, outcome in zip(questions, outcomes, strict=False):
                tally.judge(question, outcome, *([] if stay is None else [grpc.StatusCode.CANCELLED]))

    async with connect(server.address) as stub:
        await asyncio.gather(*(caller() for _ in range(_CALLERS)))
        await fleet.settle(tally, server)
    return tally.report()
