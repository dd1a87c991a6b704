"""Real catalogues, counted by hand once."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from item_catalog.attribute_columns import attribute_values
from item_catalog.building.builder import build_catalog
from item_catalog.cli.app import app
from item_catalog.sources.files import read_source
from item_catalog.statistics import catalog_statistics
from item_catalog.storage.directory import open_catalog, save_catalog
from tests.oracles.dict_trie import DictTrie

pytestmark = pytest.mark.shared


class Known(NamedTuple):
    file: str
    num_items: int
    num_sids: int
    max_items_per_sid: int
    num_first_codes: int
    num_levels: int


KNOWN = [
    Known("beauty/Beauty.index.json", 12_101, 12_088, 3, 197, 4),
    Known("yelp/Yelp.index.json", 20_033, 19_201, 65, 256, 4),
    Known("minionerec/index/Industrial_and_Scientific.index.json", 3_686, 3_670, 3, 48, 3),
    Known("minionerec/index/Office_Products.index.json", 3_459, 3_444, 2, 88, 3),
]
each_known = pytest.mark.parametrize("known", KNOWN, ids=lambda known: Path(known.file).stem)


@each_known
def test_the_commands_build_verify_and_inspect_them(known: Known, shared_data: Path, tmp_path: Path):
    directory = str(tmp_path / "catalog")
    assert CliRunner().invoke(app, ["build", str(shared_data / known.file), directory]).exit_code == 0
    assert CliRunner().invoke(app, ["verify", directory]).stdout.startswith(f"{directory}: sound, version ")
    facts = json.loads(CliRunner().invoke(app, ["inspect", directory, "--json"]).stdout)
    assert (facts["num_items"], facts["num_sids"], facts["max_items_per_sid"]) == known[1:4]
    assert len(facts["levels"]) == known.num_levels
    assert facts["attributes"] == {}


@each_known
def test_real_catalogues(known: Known, shared_data: Path, tmp_path: Path):
    source = shared_data / known.file
    rows = read_source(source)
    item_ids = np.asarray(rows.item_ids)
    shelves = pa.array([f"shelf {item_id % 7}" if item_id % 3 else None for item_id in item_ids.tolist()])
    attributes = {"shelf": shelves, "number": item_ids, "half": item_ids / 2, "is_even": item_ids % 2 == 0}
    save_catalog(build_catalog(None, rows.sids, rows.item_ids, attributes), tmp_path / "catalog")
    catalog = open_catalog(tmp_path / "catalog")
    assert attribute_values(catalog.attributes["number"], range(known.num_items)) == [
        int(item_id) for item_id in catalog.item_ids.take(range(known.num_items))
    ]
    assert catalog_statistics(catalog).attributes["shelf"].num_distinct == 7

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
