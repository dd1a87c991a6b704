"""Equal questions all at once, of which the one that computes for all leaves."""

import asyncio

import grpc

from recall_service.serving.query import CacheMode
from tests.faults.calls import Outcome, ask, connect
from tests.faults.fleet import STAMPEDE_SEED, Fleet, Role
from tests.faults.model_faults import Fault
from tests.faults.questions import fault_questions
from tests.faults.report import FaultReport, Tally
from tests.faults.server_process import ServerProcess

_CALLERS = 500
_LEADER_STAYS_SECONDS = 0.1  # of the 0.3 s that the question takes
_PREFILLED = 'recall_batch_requests_sum{phase="prefill"}'


async def stampede(fleet: Fleet, *, full: bool) -> FaultReport:
    """All but the one that left are answered, from two computations at most: its own and one more."""
    tally, server = Tally(fleet.oracle), await fleet.server(Role.MAIN)
    for question in fault_questions(Fault.SLEEPS, STAMPEDE_SEED)[: 2 if full else 1]:
        async with connect(server.address) as stub:
            before = await _prefilled(server)
            leader = asyncio.create_task(ask(stub, question, CacheMode.USE, cancel_after=_LEADER_STAYS_SECONDS))
            await asyncio.sleep(0.02)
            followers: list[Outcome] = await asyncio.gather(
                *(ask(stub, question, CacheMode.USE) for _ in range(_CALLERS - 1))
            )
            tally.judge(question, await leader, grpc.StatusCode.CANCELLED)
            for outcome in followers:
                tally.judge(question, outcome)
            await fleet.settle(tally, server)
            computed = await _prefilled(server) - before
            tally.check(computed <= 2, f"{computed:g} computations of one question")
            tally.note(f"{computed:g} computations, the slowest took {max(o.seconds for o in followers):.2f} s")
    return tally.report()


async def _prefilled(server: ServerProcess) -> float:
    return (await asyncio.to_thread(server.metrics))[_PREFILLED]
