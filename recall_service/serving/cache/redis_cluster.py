"""A Redis Cluster for single keys: each command goes to the node that owns the key's slot.

Stands in for redis-py's cluster client, whose errors close every connection of every node, and which has each waiting
caller find out the whole cluster anew: a storm, out of one node's failure. Here one task draws the map of slots, in the
background and at most once a second, and a failure stays with the node it came from.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.crc import key_slot

Address = tuple[str, int]

_NUM_SLOTS = 16_384
_REDRAW_SECONDS = 1.0
_NODE_FAILURES = (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.ClusterDownError)


class ClusterClient:
    """For use by one event loop.

    seeds: nodes to ask first, and whenever no other answers. open_node: a client of one node, with bounds of its own.
    """

    def __init__(self, seeds: Sequence[Address], open_node: Callable[[Address], Redis]) -> None:
        self._seeds = seeds
        self._open_node = open_node
        self._nodes: dict[Address, Redis] = {}
        self._owners: list[Address | None] = [None] * _NUM_SLOTS
        self._drawing: asyncio.Task[None] | None = None
        self._next_drawing = float("-inf")

    async def get(self, name: str) -> Any:
        """What the owner holds under `name`. Raises what redis-py does: ConnectionError while nobody owns it."""
        return await self._at_owner(name, lambda node: node.get(name))

    async def set(self, name: str, value: bytes, *, px: int) -> Any:
        """Store for `px` milliseconds. Raises as `get` does."""
        return await self._at_owner(name, lambda node: node.set(name, value, px=px))

    async def aclose(self) -> None:
        """Drop every connection."""
        if self._drawing is not None:
            self._drawing.cancel()
            await asyncio.gather(self._drawing, return_exceptions=True)
        await self._close_others(())

    async def _at_owner(self, name: str, command: Callable[[Redis], Awaitable[Any]]) -> Any:
        """What `command` gives at the owner of the slot, or at the one that the owner names in its place.

        A key whose slot is on the move (ASK) is not followed: it raises, and so is a miss, until the slot has arrived.
        """
        slot = key_slot(name.encode())
        owner = await self._owner(slot)
        try:
            try:
                return await command(self._node(owner))
            except redis_errors.MovedError as moved:
                self._redraw()
                return await command(self._node((moved.host or owner[0], moved.port)))
        except _NODE_FAILURES:
            self._redraw()
            raise

    async def _owner(self, slot: int) -> Address:
        if self._owners[slot] is None:
            self._redraw()
            if self._drawing is not None:
                await asyncio.wait([self._drawing])
        if (owner := self._owners[slot]) is None:
            raise redis_errors.ConnectionError("no node of the cluster says who owns the slot")
        return owner

    def _node(self, address: Address) -> Redis:
        if address not in self._nodes:
            self._nodes[address] = self._open_node(address)
        return self._nodes[address]

    def _redraw(self) -> None:
        """Have the map drawn anew, unless that has just been done."""
        now = time.monotonic()
        if now < self._next_drawing or (self._drawing is not None and not self._drawing.done()):
            return
        self._next_drawing = now + _REDRAW_SECONDS
        self._drawing = asyncio.create_task(self._draw())

    async def _draw(self) -> None:
        """Ask one node after another until one says who owns which slots."""
        addresses = list({*self._nodes, *self._seeds})
        random.shuffle(addresses)  # lest a node that is cut off from the others is believed each time
        for address in addresses:
            try:
                reply = await self._node(address).execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
                owners = _owners(reply, address)
            except Exception:  # noqa: BLE001, S112 - whatever is wrong with this node, the next may know
                continue
            self._owners = owners
            await self._close_others({owner for owner in owners if owner is not None})
            return

    async def _close_others(self, kept: Collection[Address]) -> None:
        closed = [self._nodes.pop(address) for address in [*self._nodes] if address not in kept]
        await asyncio.gather(*(node.aclose() for node in closed), return_exceptions=True)


def _owners(ranges: list[Any], asked: Address) -> list[Address | None]:
    """By slot, from a reply to CLUSTER SLOTS: [first slot, last slot, [host, port, ...] of the primary, ...] each.

    A node that does not know its own address leaves the host out: it is where it was asked. Raises ValueError or
    TypeError for what is no such reply.
    """
    owners: list[Address | None] = [None] * _NUM_SLOTS
    for first, last, (host, port, *_), *_ in ranges:
        if not (0 <= first <= last < _NUM_SLOTS and 0 < port < 65_536):
            raise ValueError(f"slots {first} to {last} at port {port}")
        owners[first : last + 1] = [(host.decode() if host else asked[0], port)] * (last + 1 - first)
    return owners
