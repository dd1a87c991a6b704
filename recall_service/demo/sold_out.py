"""An item is sold out while the server serves, and comes back: updates through the port for operators."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from recall_service.client import RecallResult
from recall_service.client.channel import Access, open_channel
from recall_service.client.policy import BALANCING, channel_options
from recall_service.demo.assortment import Assortment
from recall_service.stubs.recall.v1.admin_pb2_grpc import AdminServiceStub
from recall_service.update_messages import to_message

_CALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class SoldOut:
    """What became of it.

    live_seconds: from asking for the removal to the word that it is durable and live.
    meanwhile, afterwards: the answers to one question, without the item and with it again.
    """

    item_id: str
    live_seconds: float
    meanwhile: RecallResult
    afterwards: RecallResult


def sell_out(admin_address: str, assortment: Assortment, item_id: str, ask: Callable[[], RecallResult]) -> SoldOut:
    """Remove an item, ask, put the item back as it was, ask again. Raises grpc.RpcError when the server refuses."""
    with open_channel(admin_address, Access(), channel_options(BALANCING)) as channel:
        grpc.channel_ready_future(channel).result(_CALL_SECONDS)  # so that connecting is not measured
        admin = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        started = time.perf_counter()
        _apply(admin, ItemUpdates(removals=(item_id,)))
        live_seconds = time.perf_counter() - started
        meanwhile = ask()
        _apply(admin, ItemUpdates(upserts=(_as_it_was(assortment, item_id),)))
        return SoldOut(item_id, live_seconds, meanwhile, ask())


def _apply(admin: AdminServiceStub, updates: ItemUpdates) -> None:
    admin.ApplyItemUpdates(to_message(updates, bundle=""), timeout=_CALL_SECONDS)


def _as_it_was(assortment: Assortment, item_id: str) -> ItemUpsert:
    row = assortment.item_ids.index(item_id)
    values = {name: column[row].item() for name, column in assortment.attributes().items()}
    return ItemUpsert(item_id, tuple(assortment.sids[row].tolist()), values)
