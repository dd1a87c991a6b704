"""A Redis that is gone, silent, slow, full, read-only or full of poison: no answer may be wrong or late for it."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from recall_service.serving.query import CacheMode
from recall_service.stubs.recall.v1.recall_pb2 import SERVED_FROM_SHARED_CACHE
from tests.faults.calls import ask, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.report import FaultReport, Tally
from tests.faults.scenarios.redis_faults import FAULTS, under_fire

_CALLERS = 6
_LONGEST_SECONDS = 1.0  # of an answer: its search, the 50 ms that Redis may add, and a busy machine
_RECOVERY_SECONDS = 3.0  # the breaker lets a question through every 0.3 s


async def redis(fleet: Fleet, *, full: bool) -> FaultReport:
    """Every fault in turn against a server without a tier of its own, and after each the cache is of use again."""
    tally, server = Tally(fleet.oracle), await fleet.server(Role.REPLICA)
    for binary in fleet.redis_binaries if full else fleet.redis_binaries[:1]:
        async with (
            under_fire(fleet.redis, binary, fleet.directory) as ground,
            connect(server.address) as stub,
        ):
            for fault in FAULTS:
                await _until_cached(tally, stub)
                await _traffic(tally, stub, num_calls=len(fleet.oracle.questions), seed=0)
                async with fault(ground):
                    seconds = await _traffic(tally, stub, num_calls=1_000 if full else 40, seed=15)
                tally.note(f"{Path(binary).name} {fault.__name__}: {np.percentile(seconds, 99) * 1000:.0f} ms at p99")
    async with connect(server.address) as stub:
        await _until_cached(tally, stub)
    await fleet.settle(tally, server)
    return tally.report()


async def _traffic(tally: Tally, stub: Any, *, num_calls: int, seed: int) -> list[float]:
    """Ask, and return how long each took. With seed 0 every question is asked, in order."""
    chance, seconds = random.Random(seed), []
    questions = tally.oracle.questions
    pending = iter([chance.choice(questions) for _ in range(num_calls)] if seed else questions)

    async def caller() -> None:
        for question in pending:
            mode = CacheMode.REFRESH if chance.random() < 0.2 else CacheMode.USE
            outcome = await ask(stub, question, mode)
            tally.judge(question, outcome)
            if outcome.code is grpc.StatusCode.OK and outcome.seconds > _LONGEST_SECONDS:
                tally.hang(f"{outcome.seconds:.2f} s, {_LONGEST_SECONDS} s are too long: {question}")
            seconds.append(outcome.seconds)

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))
    return seconds


async def _until_cached(tally: Tally, stub: Any) -> None:
    """Redis is well: soon an answer comes from there."""
    question, patience_ends = tally.oracle.questions[0], time.monotonic() + _RECOVERY_SECONDS
    while time.monotonic() < patience_ends:
        outcome = await ask(stub, question, CacheMode.USE)
        tally.judge(question, outcome)
        if outcome.answer is not None and outcome.answer.served_from == SERVED_FROM_SHARED_CACHE:
            return
        await asyncio.sleep(0.05)
    tally.hang(f"no answer came from a sound Redis within {_RECOVERY_SECONDS} s")
