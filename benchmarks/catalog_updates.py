"""How soon a batch of item updates is live: from the call of ApplyItemUpdates to its answer, on a real server.

The server is a process of its own, with a model of next to no size. Its catalogue, of any size, lies in a store, so
every batch is on the disk before it goes live. No two batches name the same item.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
from numpy.typing import NDArray

from benchmarks.catalog_attributes import CATEGORIES, CATEGORY, MAX_PRICE, PRICE
from benchmarks.catalog_data import ID_STEP
from benchmarks.service_servers import AT_ONCE, recall_server
from benchmarks.workload import TINY, prepare_checkpoint
from item_catalog.catalog import Catalog
from item_catalog.updating.store import CatalogStore
from recall_service.stubs.recall.v1 import admin_pb2, recall_pb2
from recall_service.stubs.recall.v1.admin_pb2_grpc import AdminServiceStub
from tests.serving.bundles import write_toml

BATCH = 10_000
MIXED, ATTRIBUTES_ONLY = 6, 5  # batches; the first mixed one is apart
# Of a mixed batch; the rest are new items, half of them on SIDs that exist.
CHANGED, MOVED, REMOVED = 0.4, 0.2, 0.1
_LONG_SECONDS = 600.0

# A model's word for each code: <t10>, <t11> and so on, since <t0> stands for all words that it does not know.
_CODE_WORD = "<t1{code}>"


class Batch(NamedTuple):
    """A request and what must come of it."""

    request: admin_pb2.ApplyItemUpdatesRequest
    added: int
    changed: int
    removed: int


def write_bundle(directory: Path) -> None:
    """A bundle around the store `directory`/catalog, whose model has a word for each code."""
    layout = CatalogStore(directory / "catalog").load(verify=False).catalog.layout
    last_code = max(layout.codebook_sizes) - 1
    last_word = int(_CODE_WORD.format(code=last_code)[2:-1])
    prepare_checkpoint(replace(TINY, vocab_size=last_word + 1), directory / "model")
    write_toml(directory, sid={"tokens": [_CODE_WORD] * layout.num_levels}, prompt={"prefix": [0]})


def measure_updates(bundle: Path, batch: int = BATCH) -> dict[str, Any]:
    """bundle: of `write_bundle`, its items with the attributes of `catalog_attributes`. In seconds, medians."""
    catalog = CatalogStore(bundle / "catalog").load(verify=False).catalog
    mixed, attributes_only = draw_batches(catalog, batch)
    with recall_server(bundle, AT_ONCE) as server, grpc.insecure_channel(server.admin_address) as channel:
        admin = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        first, *later = (_apply(admin, each) for each in mixed)
        prices = [_apply(admin, each) for each in attributes_only]
        resident_bytes = server.resident_bytes
    return {
        "update_10k_seconds": statistics.median(later),
        "update_first_seconds": first,
        "update_attributes_seconds": statistics.median(prices),
        "update_batch": batch,
        "update_server_bytes": resident_bytes,
    }


def draw_batches(catalog: Catalog, batch: int) -> tuple[list[Batch], list[Batch]]:
    """MIXED and ATTRIBUTES_ONLY batches of so many updates, for one catalogue, one after another."""
    chance = np.random.default_rng(0)
    num_known = batch * (MIXED + ATTRIBUTES_ONLY)  # more than mixed batches need
    if num_known > catalog.num_items:
        most = catalog.num_items // (MIXED + ATTRIBUTES_ONLY)
        raise ValueError(f"batch: {batch:,} updates; {catalog.num_items:,} items are enough for batches of {most:,}")
    known = iter(catalog.item_ids.take(chance.choice(catalog.num_items, num_known, replace=False)))
    new = map(str, count(ID_STEP * catalog.num_items))  # beyond all that there are
    mixed = [_mixed_batch(catalog, batch, known, new, chance) for _ in range(MIXED)]
    return mixed, [_price_batch(batch, known, chance) for _ in range(ATTRIBUTES_ONLY)]


def _mixed_batch(
    catalog: Catalog, batch: int, known: Iterator[str], new: Iterator[str], chance: np.random.Generator
) -> Batch:
    num_changed, num_moved, num_removed = (int(share * batch) for share in (CHANGED, MOVED, REMOVED))
    num_new = batch - num_changed - num_moved - num_removed
    request = admin_pb2.ApplyItemUpdatesRequest(
        upserts=[
            *(_upsert(item_id, None, chance) for item_id in islice(known, num_changed)),
            *_placed(islice(known, num_moved), _sids(catalog, num_moved, chance), chance),
            *_placed(islice(new, num_new), _sids(catalog, num_new, chance), chance),
        ],
        removals=islice(known, num_removed),
    )
    return Batch(request, added=num_new, changed=num_changed + num_moved, removed=num_removed)


def _price_batch(batch: int, known: Iterator[str], chance: np.random.Generator) -> Batch:
    upserts = [_upsert(item_id, None, chance) for item_id in islice(known, batch)]
    return Batch(admin_pb2.ApplyItemUpdatesRequest(upserts=upserts), added=0, changed=batch, removed=0)


def _sids(catalog: Catalog, num_sids: int, chance: np.random.Generator) -> NDArray[np.int32]:
    """int32 [num_sids, levels]: half of them SIDs of items, half of them of chance, which hardly any item has."""
    occupied = catalog.sids_of(chance.integers(0, catalog.num_items, num_sids // 2))
    sizes = catalog.layout.codebook_sizes
    return np.concatenate([occupied, chance.integers(0, sizes, (num_sids - num_sids // 2, len(sizes)), dtype=np.int32)])


def _placed(
    item_ids: Iterator[str], sids: NDArray[np.int32], chance: np.random.Generator
) -> Iterator[admin_pb2.ItemUpsert]:
    return (_upsert(item_id, sid, chance) for item_id, sid in zip(item_ids, sids.tolist(), strict=True))


def _upsert(item_id: str, sid: list[int] | None, chance: np.random.Generator) -> admin_pb2.ItemUpsert:
    attributes = {PRICE: recall_pb2.Value(number=chance.uniform(0, MAX_PRICE))}
    if sid is not None:
        attributes[CATEGORY] = recall_pb2.Value(text=CATEGORIES[chance.integers(len(CATEGORIES))])
    return admin_pb2.ItemUpsert(item_id=item_id, sid=sid, attributes=attributes)


def _apply(admin: AdminServiceStub, batch: Batch) -> float:
    """Seconds of the call. Raises RuntimeError unless it has done what it should, and that is live."""
    start = time.perf_counter()
    response = admin.ApplyItemUpdates(batch.request, timeout=_LONG_SECONDS)
    seconds = time.perf_counter() - start
    done = Batch(batch.request, response.added, response.changed, response.removed)
    if done != batch:
        raise RuntimeError(f"updates: {done[1:]} were added, changed and removed; {batch[1:]} should be")
    (live,) = admin.ListBundles(admin_pb2.ListBundlesRequest(), timeout=_LONG_SECONDS).bundles
    if live.info.catalog_version != response.catalog.version:
        raise RuntimeError(f"updates: version {live.info.catalog_version} is live; {response.catalog.version} should")
    return seconds
