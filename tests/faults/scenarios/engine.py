"""Steps of the engine that fail: an exception, no memory, numbers that are none; beside innocent questions."""

import asyncio
import random

import grpc

from tests.faults.calls import ask, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.model_faults import Fault
from tests.faults.questions import fault_questions
from tests.faults.report import FaultReport, Tally

_CODES = {
    Fault.RAISES: grpc.StatusCode.INTERNAL,
    Fault.NAN: grpc.StatusCode.INTERNAL,
    Fault.OUT_OF_MEMORY: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_NUM_INNOCENTS = 6


async def engine(fleet: Fleet, *, full: bool) -> FaultReport:
    """The guilty fail with their code, one whose numbers are NaN alone, and afterwards everybody is answered.

    A step that raises takes the innocent of the same step with it, for nobody can tell who is guilty.
    """
    chance = random.Random(13)
    tally, server = Tally(fleet.oracle), await fleet.server(Role.MAIN)
    async with connect(server.address) as stub:
        for seed in range(60 if full else 4):
            for fault, code in _CODES.items():
                for guilty in fault_questions(fault, seed):
                    innocents = chance.sample(fleet.oracle.questions, _NUM_INNOCENTS)
                    crime, *others = await asyncio.gather(
                        ask(stub, guilty), *(ask(stub, innocent) for innocent in innocents)
                    )
                    tally.check(crime.code is code, f"{fault.name}: {crime.code}, {code} is right: {crime.details}")
                    for innocent, outcome in zip(innocents, others, strict=True):
                        tally.judge(innocent, outcome, *(() if fault is Fault.NAN else (code,)))
                    tally.judge(innocents[0], await ask(stub, innocents[0]))
        await fleet.settle(tally, server)
    return tally.report()
