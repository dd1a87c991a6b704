"""Servers that are told to go: under load, twice, and while they load."""

import asyncio
import random
import signal
import time

import grpc

from recall_service.client import AsyncRecallClient
from recall_service.serving.query import CacheMode
from tests.faults.calls import ask, ask_client, connect
from tests.faults.fleet import DRAIN_SECONDS, Fleet, Role
from tests.faults.model_faults import Fault
from tests.faults.questions import fault_questions
from tests.faults.report import FaultReport, Tally

_CALLERS = 8
_UNDER_LOAD_SECONDS = 0.4
_AT_ONCE_SECONDS = 2.5
_NUM_INSIDE = 64  # four at a time, 0.3 s each
_EXITS = (0, -signal.SIGTERM)  # of a server that had not begun to serve


async def sigterm(fleet: Fleet, *, full: bool) -> FaultReport:
    """All of them in turn."""
    tally = Tally(fleet.oracle)
    for _ in range(5 if full else 1):
        await _under_load(fleet, tally)
        await _twice(fleet, tally)
    for loaded_seconds in (0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 2.5) if full else (1.0,):
        await _while_loading(fleet, tally, loaded_seconds)
    return tally.report()


async def _under_load(fleet: Fleet, tally: Tally) -> None:
    """One of two replicas goes. Its own callers are answered or told UNAVAILABLE; a retrying client sees nothing."""
    chance = random.Random(15)
    leaving, staying = await fleet.server(Role.REPLICA), await fleet.server(Role.OTHER_CATALOG)
    is_over = asyncio.Event()

    async def caller() -> None:
        while True:
            question = chance.choice(fleet.oracle.questions)
            outcome = await ask(stub, question)
            tally.judge(question, outcome, grpc.StatusCode.UNAVAILABLE)
            if outcome.code is not grpc.StatusCode.OK:
                return

    async def application() -> None:
        while not is_over.is_set():
            question = chance.choice(fleet.oracle.questions)
            tally.judge(question, await ask_client(client, question, CacheMode.USE))

    async with (
        connect(leaving.address) as stub,
        AsyncRecallClient(f"ipv4:///{leaving.address},{staying.address}") as client,
    ):
        callers = [asyncio.create_task(caller()) for _ in range(_CALLERS)]
        applications = [asyncio.create_task(application()) for _ in range(_CALLERS)]
        await asyncio.sleep(_UNDER_LOAD_SECONDS)
        leaving.signal(signal.SIGTERM)
        started = time.monotonic()
        code = await asyncio.to_thread(leaving.exit_code, DRAIN_SECONDS + 4)
        tally.check(code == 0, f"SIGTERM under load: exit code {code} after {time.monotonic() - started:.1f} s")
        tally.note(f"SIGTERM under load: gone after {time.monotonic() - started:.2f} s")
        await asyncio.to_thread(leaving.kill)
        await asyncio.gather(*callers)
        await asyncio.sleep(_UNDER_LOAD_SECONDS)
        is_over.set()
        await asyncio.gather(*applications)
    await fleet.settle(tally, staying)


async def _twice(fleet: Fleet, tally: Tally) -> None:
    """A second signal does not wait for the calls that are inside, which would take longer than is allowed here."""
    server = await fleet.server(Role.OTHER_CATALOG)
    sleeper = fault_questions(Fault.SLEEPS)[0]
    async with connect(server.address) as stub:
        calls = [asyncio.create_task(ask(stub, sleeper)) for _ in range(_NUM_INSIDE)]
        await asyncio.sleep(0.3)
        server.signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
        server.signal(signal.SIGTERM)
        started = time.monotonic()
        code = await asyncio.to_thread(server.exit_code, _AT_ONCE_SECONDS)
        tally.check(code == 0, f"second signal: exit code {code} after {time.monotonic() - started:.1f} s")
        tally.note(f"second signal: gone after {time.monotonic() - started:.2f} s")
        for outcome in await asyncio.gather(*calls):
            tally.judge(sleeper, outcome, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    await asyncio.to_thread(server.kill)


async def _while_loading(fleet: Fleet, tally: Tally, loaded_seconds: float) -> None:
    """A server that does not serve yet goes as well, soon and without a word of complaint."""
    server = fleet.servers[Role.REPLICA]
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.spawn)
    await asyncio.sleep(loaded_seconds)
    server.signal(signal.SIGTERM)
    code = await asyncio.to_thread(server.exit_code, DRAIN_SECONDS)
    tally.check(code in _EXITS, f"SIGTERM after {loaded_seconds} s of loading: exit code {code}")
    await asyncio.to_thread(server.kill)
