"""The catalogue's benchmark at toy size: what is timed is a whole catalogue, and the same search at every size."""

from pathlib import Path

import pytest

from benchmarks.catalog import measure
from benchmarks.catalog_data import Shape, read_rows, write_rows
from item_catalog.builder import build_catalog

TOY = Shape(codebook_size=64, num_visited=16, children=8, leaves=2)


@pytest.mark.parametrize("shuffled_ids", [False, True], ids=["ascending", "shuffled"])
@pytest.mark.parametrize("num_items", [TOY.min_items, 3_000])
def test_what_is_visited_branches_alike_at_every_size(num_items: int, shuffled_ids: bool, tmp_path: Path) -> None:
    write_rows(tmp_path, TOY, num_items, shuffled_ids=shuffled_ids)
    sids, item_ids = read_rows(tmp_path)
    assert ((item_ids[1:] > item_ids[:-1]).all()) != shuffled_ids
    catalog = build_catalog(TOY.layout, sids, item_ids)
    assert catalog.num_items == num_items
    tree = catalog.trie
    assert tree.codes[0].tolist() == list(range(64))
    for code in TOY.visited_codes:
        seconds = range(tree.offsets[1][code], tree.offsets[1][code + 1])
        assert len(seconds) == 8
        assert {int(tree.offsets[2][node + 1] - tree.offsets[2][node]) for node in seconds} == {2}


def test_sizes_are_measured_and_searched_alike(tmp_path: Path) -> None:
    small, large = measure(TOY, [TOY.min_items, 5_000], width=5, shuffled_ids=False, directory=tmp_path)
    assert (small["items"], large["items"]) == (TOY.min_items, 5_000)
    for result in (small, large):
        assert result["build_ratio"] == result["build_seconds"] / result["sort_seconds"] > 0
        assert result["bytes_per_item"] > result["trie_bytes_per_item"] > 0
        assert min(result["open_seconds"], result["verify_seconds"], result["selection_seconds"]) > 0
    assert not list(tmp_path.iterdir())


def test_too_few_items_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"num_items: 9; give at least {TOY.min_items}"):
        write_rows(tmp_path, TOY, 9, shuffled_ids=False)
