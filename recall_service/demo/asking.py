"""The demo's questions: always as many items, always as wide a beam, asked over gRPC as any caller would."""

import asyncio
from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.progress import Progress

from recall_service.client import AsyncRecallClient, RecallClient, RecallResult
from recall_service.client.predicates import Predicate
from recall_service.demo.shop import Shop

BEAM_WIDTH = 200
NUM_ITEMS = 100
_CALLS_AT_ONCE = 4


def history_of(shop: Shop, user: int) -> list[str]:
    """The ids of what a held-out user took, oldest first."""
    return shop.assortment.ids_of(shop.held_out.of_user(user))


def ask(
    client: RecallClient,
    shop: Shop,
    user: int,
    *,
    cache: Literal["use", "refresh", "bypass"] = "use",
    where: Sequence[Predicate] = (),
    exclude_history: bool = False,
) -> RecallResult:
    """What comes next for a held-out user, among the items that are asked for."""
    return client.recall(
        history=history_of(shop, user),
        num_items=NUM_ITEMS,
        beam_width=BEAM_WIDTH,
        scene="feed",
        cache=cache,
        where=where,
        exclude_history=exclude_history,
    )


async def ask_many(address: str, shop: Shop, num_users: int) -> list[RecallResult]:
    """Every held-out user up to `num_users` once, a few at a time, past the cache."""
    gate = asyncio.Semaphore(_CALLS_AT_ONCE)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"recalling for {num_users} held-out users", total=num_users)
        async with AsyncRecallClient(address, timeout=60.0) as client:

            async def ask_for(user: int) -> RecallResult:
                async with gate:
                    answer = await client.recall(
                        history=history_of(shop, user), num_items=NUM_ITEMS, beam_width=BEAM_WIDTH, cache="bypass"
                    )
                bar.advance(task)
                return answer

            return await asyncio.gather(*(ask_for(user) for user in range(num_users)))
