"""Item updates as an operator's file has them -> the message that asks a server for them. Knows no catalogue."""

from collections.abc import Sequence

from item_catalog.attributes import Value
from item_catalog.errors import CatalogError
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from recall_service.stubs.recall.v1 import admin_pb2, recall_pb2

_MAX_INT64 = 2**63 - 1
_MAX_UINT32 = 2**32 - 1


def to_message(updates: ItemUpdates, bundle: str) -> admin_pb2.ApplyItemUpdatesRequest:
    """Raises CatalogError, naming item, field, value and remedy, for what no message can hold."""
    return admin_pb2.ApplyItemUpdatesRequest(
        bundle=bundle, upserts=map(_upsert_message, updates.upserts), removals=updates.removals
    )


def _upsert_message(upsert: ItemUpsert) -> admin_pb2.ItemUpsert:
    message = admin_pb2.ItemUpsert(item_id=upsert.item_id)
    if upsert.sid is not None:
        message.sid.extend(_codes(upsert.item_id, upsert.sid))
    for name, value in upsert.attributes.items():
        if value is None:
            message.cleared_attributes.append(name)
        else:
            message.attributes[name].CopyFrom(_value_message(upsert.item_id, name, value))
    return message


def _codes(item_id: str, sid: Sequence[int]) -> Sequence[int]:
    if not sid:
        raise CatalogError(f"item {item_id}: sid: no codes; give one for each level, or leave it out")
    for code in sid:
        if type(code) is not int or not 0 <= code <= _MAX_UINT32:
            raise CatalogError(f"item {item_id}: sid: {code!r} is no code; give integers from 0")
    return sid


def _value_message(item_id: str, name: str, value: Value) -> recall_pb2.Value:
    if isinstance(value, bool):
        return recall_pb2.Value(boolean=value)
    if isinstance(value, str):
        return recall_pb2.Value(text=value)
    if isinstance(value, float):
        return recall_pb2.Value(number=value)
    if isinstance(value, int) and -_MAX_INT64 - 1 <= value <= _MAX_INT64:
        return recall_pb2.Value(integer=value)
    raise CatalogError(
        f"item {item_id}: attributes.{name}: {value!r}; give text, an int64, a number, true, false or null"
    )
