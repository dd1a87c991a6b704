"""Real catalogues, counted by hand once."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from item_catalog.builder import build_catalog
from item_catalog.sources import read_source
from item_catalog.statistics import catalog_statistics
from item_catalog.storage import open_catalog, save_catalog
from tests.oracles.dict_trie import DictTrie

pytestmark = pytest.mark.shared


class Known(NamedTuple):
    file: str
    num_items: int
    num_sids: int
    max_items_per_sid: int
    num_first_codes: int
    num_levels: int


@pytest.mark.parametrize(
    "known",
    [
        Known("beauty/Beauty.index.json", 12_101, 12_088, 3, 197, 4),
        Known("yelp/Yelp.index.json", 20_033, 19_201, 65, 256, 4),
        Known("minionerec/index/Industrial_and_Scientific.index.json", 3_686, 3_670, 3, 48, 3),
        Known("minionerec/index/Office_Products.index.json", 3_459, 3_444, 2, 88, 3),
    ],
    ids=lambda known: Path(known.file).stem,
)
def test_real_catalogues(known: Known, shared_data: Path, tmp_path: Path):
    source = shared_data / known.file
    rows = read_source(source)
    save_catalog(build_catalog(None, rows.sids, rows.item_ids), tmp_path / "catalog")
    catalog = open_catalog(tmp_path / "catalog")

    statistics = catalog_statistics(catalog)
    assert (statistics.num_items, statistics.num_sids) == (known.num_items, known.num_sids)
    assert statistics.max_items_per_sid == known.max_items_per_sid
    assert statistics.levels[0].num_prefixes == known.num_first_codes
    assert catalog.layout.codebook_sizes == (256,) * known.num_levels

    raw = json.loads(source.read_text())
    oracle = DictTrie([(int(item), tuple(int(t[3:-1]) for t in tokens)) for item, tokens in raw.items()])
    _, counts = catalog.items_of_leaves(range(known.num_sids))
    assert catalog.trie.leaf_sids(range(known.num_sids)).tolist() == [list(sid) for sid in oracle.items]
    assert counts.tolist() == [len(items) for items in oracle.items.values()]
    assert catalog.item_ids.take(range(known.num_items)) == [
        str(item) for items in oracle.items.values() for item in items
    ]
