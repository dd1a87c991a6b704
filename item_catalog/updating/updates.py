"""Changes to the items of a catalogue, as somebody asks for them. Knows no catalogue, no file and no wire format."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from item_catalog.attributes import Value
from item_catalog.errors import CatalogError


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

    def __len__(self) -> int:
        return len(self.upserts) + len(self.removals)


class UpdateProblem(NamedTuple):
    """One thing that is wrong with a batch: where, as in `upserts[3].sid`, and what to do about it."""

    path: str
    description: str


class InvalidUpdates(CatalogError):
    """A batch that a catalogue cannot take. Nothing of it was done. `problems` are all that is wrong, in its order."""

    def __init__(self, problems: tuple[UpdateProblem, ...]) -> None:
        first, *others = problems
        more = f" (and {len(others):,} more problems)" if others else ""
        super().__init__(f"{first.path}: {first.description}{more}")
        self.problems = problems


def combined(batches: Iterable[ItemUpdates], attribute_names: Iterable[str]) -> ItemUpdates:
    """Batches, one after another -> the one that does the same. Each must be valid after those before it.

    attribute_names: every attribute of the catalogue; an item that goes and comes back has lost what it had.
    """
    no_values: dict[str, Value | None] = dict.fromkeys(attribute_names)
    upserts: dict[str, ItemUpsert] = {}
    removals: dict[str, None] = {}
    for batch in batches:
        for upsert in batch.upserts:
            item_id = upsert.item_id
            if item_id in removals:
                del removals[item_id]
                upsert = replace(upsert, attributes=no_values | dict(upsert.attributes))
            upserts[item_id] = _after(upserts.get(item_id), upsert)
        for item_id in batch.removals:
            upserts.pop(item_id, None)
            removals[item_id] = None
    return ItemUpdates(tuple(upserts.values()), tuple(removals))


def _after(earlier: ItemUpsert | None, later: ItemUpsert) -> ItemUpsert:
    if earlier is None:
        return later
    sid = earlier.sid if later.sid is None else later.sid
    return ItemUpsert(later.item_id, sid, {**earlier.attributes, **later.attributes})
