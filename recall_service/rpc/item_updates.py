"""An operator's item updates: whether the message is well formed and within its limits, and what it says in our words.

What it means to a catalogue is not known here: the store of the catalogue judges that.
"""

from collections.abc import Iterator

from item_catalog.attributes import MAX_TEXT_BYTES, Value
from item_catalog.sid import MAX_LEVELS
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from recall_service.errors import InvalidRequest, Violation
from recall_service.rpc.filter_message import MAX_ATTRIBUTE_BYTES, to_value
from recall_service.rpc.validation import MAX_ITEM_ID_BYTES
from recall_service.stubs.recall.v1 import admin_pb2, recall_pb2

MAX_UPDATES = 10_000  # of one request: they hold up answers by some 20 ms; larger changes go in several


def read_updates(request: admin_pb2.ApplyItemUpdatesRequest) -> ItemUpdates:
    """What is asked for. Raises InvalidRequest with every violation."""
    violations = list(_violations(request))
    if violations:
        raise InvalidRequest(violations)
    return ItemUpdates(tuple(map(_to_upsert, request.upserts)), tuple(request.removals))


def _violations(request: admin_pb2.ApplyItemUpdatesRequest) -> Iterator[Violation]:
    num_updates = len(request.upserts) + len(request.removals)
    if not num_updates:
        yield Violation("upserts", "no upserts and no removals; give at least one of them")
    if num_updates > MAX_UPDATES:  # they are not looked at
        yield Violation("upserts", f"{num_updates:,} upserts and removals; give at most {MAX_UPDATES:,} at a time")
        return
    for row, upsert in enumerate(request.upserts):
        yield from _upsert_violations(f"upserts[{row}]", upsert)
    for row, item_id in enumerate(request.removals):
        yield from _length_violations(f"removals[{row}]", item_id, MAX_ITEM_ID_BYTES)


def _upsert_violations(path: str, upsert: admin_pb2.ItemUpsert) -> Iterator[Violation]:
    yield from _length_violations(f"{path}.item_id", upsert.item_id, MAX_ITEM_ID_BYTES)
    if len(upsert.sid) > MAX_LEVELS:
        yield Violation(f"{path}.sid", f"{len(upsert.sid):,} codes; give one for each level, {MAX_LEVELS} at most")
    for name, value in upsert.attributes.items():
        yield from _length_violations(f"{path}.attributes", name, MAX_ATTRIBUTE_BYTES)
        yield from _value_violations(f"{path}.attributes[{name[:MAX_ATTRIBUTE_BYTES]!r}]", value)
    for position, name in enumerate(upsert.cleared_attributes):
        yield from _length_violations(f"{path}.cleared_attributes[{position}]", name, MAX_ATTRIBUTE_BYTES)
        if name in upsert.attributes:
            shown = repr(name[:MAX_ATTRIBUTE_BYTES])
            yield Violation(f"{path}.cleared_attributes[{position}]", f"{shown} is also given a value; do one of both")


def _length_violations(path: str, text: str, max_bytes: int) -> Iterator[Violation]:
    if not text:
        yield Violation(path, f"empty; give 1 to {max_bytes} bytes")
    elif len(text) * 4 > max_bytes and (num_bytes := len(text.encode())) > max_bytes:
        yield Violation(path, f"{num_bytes:,} bytes; give 1 to {max_bytes}")


def _value_violations(path: str, value: recall_pb2.Value) -> Iterator[Violation]:
    kind = value.WhichOneof("kind")
    if kind is None:
        yield Violation(path, "no value; give text, integer, number or boolean, or name it in cleared_attributes")
    elif kind == "text":
        yield from _length_violations(path, value.text, MAX_TEXT_BYTES)


def _to_upsert(message: admin_pb2.ItemUpsert) -> ItemUpsert:
    attributes: dict[str, Value | None] = {name: to_value(value) for name, value in message.attributes.items()}
    attributes |= dict.fromkeys(message.cleared_attributes)
    return ItemUpsert(message.item_id, tuple(message.sid) or None, attributes)
