"""Changes to the items of a catalogue, as somebody asks for them. Knows no catalogue, no file and no wire format."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from item_catalog.attributes import Value


@dataclass(frozen=True, slots=True)
class ItemUpsert:
    """An item that is new, moves, or changes its attributes.

    sid: one code for each level; None for an item that the catalogue has: it stays where it is.
    attributes: new values by name; None takes a value away. Those not named stay as they are; a new item has no value
        for them.
    """

    item_id: str
    sid: tuple[int, ...] | None = None
    attributes: Mapping[str, Value | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ItemUpdates:
    """One batch: all of it happens, or nothing. An item stands in it once.

    removals: ids; one that the catalogue does not know is ignored.
    """

    upserts: tuple[ItemUpsert, ...] = ()
    removals: tuple[str, ...] = ()
