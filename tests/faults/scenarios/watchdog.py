"""A step of the engine that hangs."""

import asyncio
import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recall_service.serving.query import CacheMode
from tests.faults.calls import ask, connect
from tests.faults.fleet import STUCK_STEP_SECONDS, Fleet, Role
from tests.faults.model_faults import HANG_SECONDS, Fault
from tests.faults.questions import fault_questions
from tests.faults.report import FaultReport, Tally

_SERVING, _NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
_CACHED_SECONDS = 1.0  # an answer from the cache waits for no step


async def watchdog(fleet: Fleet, *, full: bool) -> FaultReport:
    """Health turns to NOT_SERVING, cached answers still come, and health returns when the step has ended."""
    tally, server = Tally(fleet.oracle), await fleet.server(Role.MAIN)
    cached = fleet.oracle.questions[0]
    async with connect(server.address) as stub, grpc.aio.insecure_channel(server.address) as channel:
        tally.judge(cached, await ask(stub, cached, CacheMode.USE))
        for hanging in fault_questions(Fault.HANGS) * (5 if full else 1):
            health = health_pb2_grpc.HealthStub(channel)
            hung = asyncio.create_task(ask(stub, hanging))
            started = time.monotonic()
            await _until(health, _NOT_SERVING, HANG_SECONDS, tally)
            turned = time.monotonic() - started
            tally.check(turned >= STUCK_STEP_SECONDS * 0.9, f"NOT_SERVING after only {turned:.2f} s")
            outcome = await ask(stub, cached, CacheMode.USE, timeout=_CACHED_SECONDS)
            tally.judge(cached, outcome)
            tally.check(time.monotonic() - started < HANG_SECONDS, "the step had ended when the cache had answered")
            tally.judge(hanging, await hung, grpc.StatusCode.UNAVAILABLE)
            await _until(health, _SERVING, 2.0, tally)
            tally.note(f"NOT_SERVING after {turned:.2f} s, a cached answer took {outcome.seconds * 1000:.1f} ms")
        await fleet.settle(tally, server)
    return tally.report()


async def _until(health: health_pb2_grpc.HealthStub, status: int, patience_seconds: float, tally: Tally) -> None:
    tally.cases += 1
    patience_ends = time.monotonic() + patience_seconds
    while (await health.Check(health_pb2.HealthCheckRequest())).status != status:
        if time.monotonic() > patience_ends:
            tally.hang(f"health did not turn to {health_pb2.HealthCheckResponse.ServingStatus.Name(status)}")
            return
        await asyncio.sleep(0.02)
