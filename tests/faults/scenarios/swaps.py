"""Catalogues swapped, updated, rolled back and published from outside, under load and while Redis is frozen."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import cycle
from typing import Any

import grpc

from recall_service.serving.query import CacheMode
from recall_service.stubs.recall.v1 import admin_pb2, admin_pb2_grpc
from recall_service.update_messages import to_message
from tests.faults.calls import ask, connect
from tests.faults.fleet import Fleet, Role
from tests.faults.report import FaultReport, Tally
from tests.faults.server_process import ServerProcess

_CALLERS = 8
_FOLLOWED_SECONDS = 5.0  # that a version published from outside may take to go live
_WARM_SWAPS = 20  # after which memory is to stay
_MAX_GROWTH = 0.03


async def swaps(fleet: Fleet, *, full: bool) -> FaultReport:
    """Every answer is right for the version it names, whatever goes live meanwhile; nothing acknowledged is lost."""
    chance = random.Random(18)
    tally, server = Tally(fleet.oracle), await fleet.server(Role.SWAPPING)
    ended = asyncio.Event()

    async def caller(stub: Any) -> None:
        while not ended.is_set():
            question, leaves = chance.choice(fleet.oracle.questions), chance.random() < 0.1
            stay = chance.random() * 0.03 if leaves else None
            outcome = await ask(stub, question, chance.choice(list(CacheMode)), cancel_after=stay)
            tally.judge(question, outcome, *([grpc.StatusCode.CANCELLED] if leaves else []))

    async with connect(server.address) as stub, grpc.aio.insecure_channel(server.admin_address) as channel:
        operator = _Operator(fleet, admin_pb2_grpc.AdminServiceStub(channel), stub, tally, chance)
        callers = [asyncio.create_task(caller(stub)) for _ in range(_CALLERS)]
        await operator.swap(_WARM_SWAPS if full else 4)
        before = server.usage()
        await operator.swap(90 if full else 4)
        fleet.redis.freeze()
        await operator.swap(90 if full else 4)
        fleet.redis.thaw()
        await asyncio.sleep(0.5)
        if full:
            growth = server.usage().rss_bytes / before.rss_bytes - 1
            tally.note(f"memory {growth:+.1%} over 180 swaps")
            tally.check(growth <= _MAX_GROWTH, f"memory has grown by {growth:.1%}")
        ended.set()
        await asyncio.gather(*callers)
        await fleet.settle(tally, server)
        await operator.update()
    await _keeps_what_it_acknowledged(fleet, tally, server)
    return tally.report()


async def _keeps_what_it_acknowledged(fleet: Fleet, tally: Tally, server: ServerProcess) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    async with connect(server.address) as stub:
        outcome = await ask(stub, fleet.oracle.questions[0])
    tally.judge(fleet.oracle.questions[0], outcome)
    found = None if outcome.answer is None else outcome.answer.catalog_version
    tally.check(found == fleet.catalogs.updated.version, f"killed and started again it serves {found}")


class _Operator:
    """Changes what is live in every way there is, one after another, and looks whether it is live then, and answers."""

    def __init__(self, fleet: Fleet, stub: Any, recalls: Any, tally: Tally, chance: random.Random) -> None:
        self._catalogs, self._stub, self._tally = fleet.catalogs, stub, tally
        self._questions, self._recalls, self._chance = fleet.oracle.questions, recalls, chance
        self._changes: cycle[Callable[[], Awaitable[None]]] = cycle(
            [
                self.update,
                self._undo,
                self._activate_other,
                self._roll_back,
                self._publish_from_outside,
                self._roll_back,
            ]
        )

    async def swap(self, count: int) -> None:
        for _ in range(count):
            await next(self._changes)()

    async def update(self) -> None:
        await self._to(self._catalogs.updated.version, self._stub.ApplyItemUpdates(self._message(undo=False)))

    async def _undo(self) -> None:
        await self._to(self._catalogs.first.version, self._stub.ApplyItemUpdates(self._message(undo=True)))

    async def _activate_other(self) -> None:
        version = self._catalogs.other.version
        await self._to(version, self._stub.ActivateCatalog(admin_pb2.ActivateCatalogRequest(version=version)))

    async def _roll_back(self) -> None:
        await self._to(self._catalogs.first.version, self._stub.RollbackCatalog(admin_pb2.RollbackCatalogRequest()))

    async def _publish_from_outside(self) -> None:
        version = self._catalogs.other.version
        await asyncio.to_thread(self._catalogs.store.publish, self._catalogs.other)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FOLLOWED_SECONDS):
                while await self._live() != version:  # noqa: ASYNC110  it is another process that we wait for
                    await asyncio.sleep(0.02)
        self._tally.check(await self._live() == version, "a version published from outside did not go live")
        await self._answers(version)

    async def _to(self, version: str, call: Awaitable[Any]) -> None:
        """Make a change, after which `version` is live at once."""
        try:
            changed = await call
        except grpc.aio.AioRpcError as error:
            self._tally.check(False, f"a change failed: {error.code()} {error.details()}")
            return
        self._tally.check(
            changed.catalog.version == version == await self._live(),
            f"{changed.catalog.version} is live, not {version}",
        )
        await self._answers(version)

    async def _answers(self, version: str) -> None:
        """Whoever asks after a change was acknowledged is answered from it, by cache and search alike."""
        question = self._chance.choice(self._questions)
        outcome = await ask(self._recalls, question, self._chance.choice(list(CacheMode)))
        self._tally.judge(question, outcome)
        named = None if outcome.answer is None else outcome.answer.catalog_version
        self._tally.check(named == version, f"an answer asked for after {version} went live names {named}")

    async def _live(self) -> str:
        listed = await self._stub.ListBundles(admin_pb2.ListBundlesRequest())
        return str(listed.bundles[0].info.catalog_version)

    def _message(self, *, undo: bool) -> admin_pb2.ApplyItemUpdatesRequest:
        return to_message(self._catalogs.undoing if undo else self._catalogs.updates, bundle="")
