"""Both clients, as one: what is asked of either must come out alike."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from recall_service.client import AsyncRecallClient, RecallClient

Ask = Callable[..., Awaitable[Any]]


async def ask_sync(target: str, method: str = "recall", *words: Any, client: Any = None, **question: Any) -> Any:
    def ask() -> Any:
        with RecallClient(target, **(client or {})) as asked:
            return getattr(asked, method)(*words, **question)

    return await asyncio.to_thread(ask)


async def ask_async(target: str, method: str = "recall", *words: Any, client: Any = None, **question: Any) -> Any:
    async with AsyncRecallClient(target, **(client or {})) as asked:
        return await getattr(asked, method)(*words, **question)


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Asks once with a client of its own: `ask(target, method, *words, client={its arguments}, **question)`."""
    asker: Ask = request.param
    return asker
