"""Real catalogues behind a model of random weights: what is asked for, and nothing else, is in the answer."""

from pathlib import Path

import numpy as np
import pytest

from item_catalog.building.builder import build_catalog
from item_catalog.filtering.filters import Filter, InRange, IsIn
from item_catalog.sources.files import read_source
from item_catalog.storage.directory import save_catalog
from recall_service.serving.query import ShortReason
from tests.make_checkpoint import write_checkpoint
from tests.serving.bundles import byte_tokenizer, small_model, token_templates, write_toml
from tests.serving.served import Served

pytestmark = pytest.mark.shared

FILES = [
    "beauty/Beauty.index.json",
    "yelp/Yelp.index.json",
    "minionerec/index/Industrial_and_Scientific.index.json",
    "minionerec/index/Office_Products.index.json",
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: Path(file).stem)
async def test_real_catalogues_answer(file: str, shared_data: Path, tmp_path: Path) -> None:
    rows = read_source(shared_data / file)
    catalog = build_catalog(None, rows.sids, rows.item_ids, {"number": np.asarray(rows.item_ids)})
    sizes = catalog.layout.codebook_sizes
    tokenizer = byte_tokenizer(sizes)
    tokenizer.save_pretrained(tmp_path / "model")
    write_checkpoint(small_model(changes=(("vocab_size", len(tokenizer)),)), tmp_path / "model")
    save_catalog(catalog, tmp_path / "catalog")
    write_toml(tmp_path, sid={"tokens": token_templates(len(sizes))}, search={"max_num_items": 128})
    served = Served(tmp_path)
    history = tuple(catalog.item_ids.take(range(5)))

    plain = await served.recall(history, num_items=100, beam_width=64)
    assert len(set(plain.item_ids)) == len(plain.item_ids) >= 64
    assert (catalog.find(plain.item_ids) >= 0).all()
    middle = int(np.median(rows.item_ids))
    low = await served.recall(
        history, num_items=60, beam_width=64, filter=Filter((InRange("number", below=middle),)), exclude_history=True
    )
    assert len(set(low.item_ids)) == 60
    assert max(map(int, low.item_ids)) < middle
    assert not set(low.item_ids) & set(history)

    fullest = int(np.argmax(np.diff(catalog.item_offsets)))
    crowd = catalog.item_ids.take(catalog.items_of_leaves([fullest]).positions)
    only_these = Filter((IsIn("number", tuple(map(int, crowd))),))
    for excluded in (0, len(crowd) - 1, len(crowd)):
        narrow = await served.recall(
            history, num_items=100, filter=only_these, exclude_item_ids=tuple(crowd[:excluded])
        )
        assert list(narrow.item_ids) == crowd[excluded:]  # they share one SID and its score: by ascending id
        assert narrow.short_reason is ShortReason.FILTER_TOO_NARROW
        assert narrow.proven_count == len(narrow.item_ids)
    served.registry.close()
