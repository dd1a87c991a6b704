"""Everything that can be done to a store, in any order, beside a dict that says what has to be live."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from item_catalog.updating.store import CatalogStore, Snapshot
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from tests.item_catalog.test_apply import assert_same
from tests.item_catalog.update_strategies import Shop, batches, shops


class StoreMachine(RuleBasedStateMachine):
    """`content` is by line: a published version, and the how-manieth time it began anew."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp())

    @initialize(shop=shops())
    def create(self, shop: Shop) -> None:
        catalog = shop.build()
        self.store = CatalogStore.create(self.path / "store", catalog)
        self.live: Snapshot = self.store.load()
        self.current = 0
        self.content = [shop]
        self.version_of = [catalog.version]
        self.line_of = {catalog.version: 0}
        self.has_updates = [False]
        self.history: list[int] = []

    @rule(shop=shops(), activate=st.booleans())
    def publish(self, shop: Shop, activate: bool) -> None:
        catalog = shop.build()
        self.store.publish(catalog, activate)
        line = self.line_of.get(catalog.version)
        if line is None or (activate and self.has_updates[line]):
            line = len(self.content)
            self.content.append(shop)
            self.version_of.append(catalog.version)
            self.has_updates.append(False)
            self.line_of[catalog.version] = line
        if activate:
            self.go_to(line)

    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.line_of)))
        self.store.activate(version)
        self.go_to(self.line_of[version])

    def go_to(self, line: int) -> None:
        if line != self.current:
            self.history.append(self.current)
            self.current = line

    @precondition(lambda self: self.history)
    @rule()
    def roll_back(self) -> None:
        self.current = self.history.pop()
        version = self.version_of[self.current]
        self.line_of[version] = self.current
        assert self.store.rollback() == version

    @rule(data=st.data(), is_stale=st.booleans())
    def apply(self, data: st.DataObject, is_stale: bool) -> None:
        before = self.content[self.current]
        updates = data.draw(batches(before))
        snapshot = self.live if is_stale else self.store.load()
        snapshot, applied = self.store.apply(updates, snapshot)
        self.record(updates)
        assert applied.catalog is snapshot.catalog
        if is_stale:
            self.live = snapshot

    def record(self, updates: ItemUpdates) -> None:
        before = self.content[self.current]
        self.content[self.current] = before.after(updates)
        self.has_updates[self.current] |= self.content[self.current].build().version != before.build().version

    @rule()
    def compact(self) -> None:
        self.live = self.store.compact(self.live)
        if not self.has_updates[self.current]:
            return
        shop = self.content[self.current]
        self.current = len(self.content)
        self.content.append(shop)
        self.version_of.append(self.live.head.base)
        self.has_updates.append(False)
        self.line_of[self.live.head.base] = self.current

    @rule(keep=st.integers(0, 2))
    def prune(self, keep: int) -> None:
        self.store.prune(keep)
        self.history = self.history[-keep:] if keep else []
        kept = {self.version_of[line] for line in (self.current, *self.history)}
        self.line_of = {version: line for version, line in self.line_of.items() if version in kept}

    @rule(old=shops(), new=shops(), stock=st.booleans())
    def begin_again_beside_a_stale_snapshot(self, old: Shop, new: Shop, stock: bool) -> None:
        """Updates of the same length, before and after a version went for good and came back."""

        def give(shop: Shop, is_in_stock: bool) -> ItemUpdates:
            return ItemUpdates((ItemUpsert(min(shop.items), None, {"in_stock": is_in_stock}),))

        self.publish(old, activate=True)
        updates = give(self.content[self.current], stock)
        self.live, _ = self.store.apply(updates, self.live)
        self.record(updates)
        self.publish(new, activate=True)
        self.prune(keep=0)
        self.publish(old, activate=True)
        for is_in_stock, snapshot in ((not stock, self.store.load()), (stock, self.live)):
            updates = give(self.content[self.current], is_in_stock)
            self.live, _ = self.store.apply(updates, snapshot)
            self.record(updates)

    @rule()
    def refresh(self) -> None:
        self.live = self.store.refresh(self.live)
        assert_same(self.live.catalog, self.content[self.current].build())

    @rule()
    def reopen(self) -> None:
        self.store = CatalogStore(self.path / "store")

    @invariant()
    def what_is_live_is_what_it_should_be(self) -> None:
        snapshot = self.store.load()
        assert snapshot.catalog.version == self.content[self.current].build().version
        assert snapshot.head == self.store.head()
        assert {stored.version for stored in self.store.versions()} == self.line_of.keys()
        assert self.store.previous() == (self.version_of[self.history[-1]] if self.history else None)

    def teardown(self) -> None:
        shutil.rmtree(self.path)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=15, stateful_step_count=12)
