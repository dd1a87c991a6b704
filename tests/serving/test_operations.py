"""Changes that operators ask for: one after another, and only while somebody waits for them to begin."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from item_catalog.updating.apply import apply_updates
from item_catalog.updating.store import CatalogStore
from item_catalog.updating.updates import ItemUpdates
from recall_service.errors import NotReady, Overloaded
from recall_service.serving.swapping.operations import MAX_WAITING
from tests.rpc.fake_backend import until
from tests.serving.stores import NEW, OLD, Operated


@pytest.fixture
def under_way(operated: Operated, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set once a version that is being read may be read to its end."""
    may_end, load = threading.Event(), CatalogStore.load

    def load_slowly(*arguments: Any) -> Any:
        may_end.wait(10)
        return load(*arguments)

    monkeypatch.setattr(CatalogStore, "load", load_slowly)
    yield may_end
    may_end.set()


async def test_a_change_is_carried_through_when_whoever_asked_leaves(operated: Operated) -> None:
    asked = asyncio.create_task(operated.operations.activate_catalog("", NEW.version))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await until(lambda: operated.version == NEW.version)


async def test_a_change_whose_turn_has_not_come_is_not_made_when_whoever_asked_leaves(
    operated: Operated, store: CatalogStore, under_way: threading.Event
) -> None:
    loading = asyncio.create_task(operated.operations.load_catalog("", NEW.version))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(operated.operations.apply_updates("", ItemUpdates(removals=("item-001",))), 0.05)
    waiting = asyncio.create_task(operated.operations.apply_updates("", ItemUpdates(removals=("item-002",))))
    under_way.set()
    assert (await loading).version == NEW.version
    assert (await waiting).removed == 1
    expected = apply_updates(OLD, ItemUpdates(removals=("item-002",))).catalog.version
    assert operated.version == store.load().catalog.version == expected


async def test_no_more_changes_wait_than_are_bounded(operated: Operated, under_way: threading.Event) -> None:
    ask = partial(operated.operations.load_catalog, "", NEW.version)
    first = asyncio.create_task(ask())
    asked = [asyncio.create_task(ask()) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0.02)
    with pytest.raises(Overloaded, match=rf"bundle tiny: {MAX_WAITING} other changes wait for their turn; ask again"):
        await ask()
    under_way.set()
    assert {state.version for state in await asyncio.gather(first, *asked)} == {NEW.version}
    assert (await ask()).version == NEW.version


async def test_after_the_end_nothing_begins(operated: Operated, under_way: threading.Event) -> None:
    loading = asyncio.create_task(operated.operations.load_catalog("", NEW.version))
    await asyncio.sleep(0.02)
    waiting = asyncio.create_task(operated.operations.activate_catalog("", NEW.version))
    await asyncio.sleep(0)
    under_way.set()
    await operated.operations.close()
    with pytest.raises(NotReady, match="this server ends, and changes nothing more"):
        await waiting
    await asyncio.gather(loading, return_exceptions=True)
    assert operated.version == OLD.version
