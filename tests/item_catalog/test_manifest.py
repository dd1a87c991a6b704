"""manifest.json agrees with itself, or is refused before any array is looked at."""

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from item_catalog.building.builder import build_catalog
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.storage.manifest import Manifest

LAYOUT = SidLayout((4, 4))
CATALOG = build_catalog(LAYOUT, [[0, 1], [0, 3], [2, 0], [2, 0]], np.array([4, 3, 2, 1]))
TEXT_CATALOG = build_catalog(LAYOUT, [[0, 1], [0, 3], [2, 0]], ["é", "b", "a"])
ATTRIBUTES_CATALOG = build_catalog(
    LAYOUT,
    [[0, 1], [0, 3], [2, 0]],
    ["é", "b", "a"],
    {
        "category": pa.array(["toys", None, "books"]),
        "nothing": pa.nulls(3, pa.string()),
        "price": np.array([1.5, 2, 3]),
    },
)


def test_manifest_round_trip():
    for catalog in (CATALOG, TEXT_CATALOG, ATTRIBUTES_CATALOG):
        manifest = Manifest.of(catalog)
        assert Manifest.from_json(manifest.to_json()) == manifest


def set_array(name: str, **fields: object) -> Callable[[dict], object]:
    return lambda document: document["arrays"][name].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda d: d.update(format_version=3), "format_version: 3; this release reads 2", id="newer"),
        pytest.param(lambda d: d.update(format_version=1), "format_version: 1; this release reads 2", id="older"),
        pytest.param(lambda d: d.pop("format_version"), "format_version: None", id="no format"),
        pytest.param(lambda d: d.pop("num_sids"), "must be exactly format_version, version,", id="field missing"),
        pytest.param(lambda d: d.update(extra=1), "must be exactly format_version, version,", id="field unknown"),
        pytest.param(lambda d: d.update(num_items="4"), "num_items: '4' is no int", id="type"),
        pytest.param(lambda d: d.update(num_items=True), "num_items: True is no int", id="bool for int"),
        pytest.param(lambda d: d.update(num_items=0), "num_items: 0", id="no items"),
        pytest.param(lambda d: d.update(num_items=5), r"item_ids: <i8 of shape \[4\], .* \[5\]", id="items"),
        pytest.param(lambda d: d.update(num_sids=4), r"trie_codes_1: <u2 of shape \[3\], .* \[4\]", id="SIDs"),
        pytest.param(lambda d: d.update(version="0" * 32), "version: 0+, but its arrays make it", id="version"),
        pytest.param(lambda d: d.update(codebook_sizes=[4, 5]), "version: ", id="codebook sizes"),
        pytest.param(
            lambda d: d.update(codebook_sizes=[4, "4"]), "codebook_sizes: .*positive integers", id="sizes type"
        ),
        pytest.param(lambda d: d.update(codebook_sizes=[4, 70_000]), "codebook_sizes.1.: 70000", id="size too large"),
        pytest.param(lambda d: d.update(codebook_sizes=[4] * 3), "arrays.trie_codes_2: missing", id="levels"),
        pytest.param(lambda d: d.update(item_id_kind="pickle"), "item_id_kind: 'pickle'", id="kind"),
        pytest.param(lambda d: d.update(item_id_kind="text"), "arrays.item_id_utf8: missing", id="other kind"),
        pytest.param(lambda d: d["arrays"].pop("item_order"), "missing or unknown: item_order", id="array missing"),
        pytest.param(
            lambda d: d["arrays"].update(more=d["arrays"]["item_order"]), "missing or unknown: more", id="array unknown"
        ),
        pytest.param(set_array("item_ids", file="../item_ids.npy"), "item_ids.file: '../item_ids.npy'", id="up"),
        pytest.param(set_array("item_ids", file="/etc/passwd"), "item_ids.file: '/etc/passwd'", id="absolute"),
        pytest.param(set_array("item_ids", file=".."), "item_ids.file: '..'", id="dots"),
        pytest.param(set_array("item_ids", file=""), "item_ids.file: ''", id="no name"),
        pytest.param(set_array("item_ids", file="a\0b"), "item_ids.file: ", id="nul"),
        pytest.param(set_array("item_ids", dtype="|O"), r"item_ids: \|O of shape \[4\], .* <i8", id="object"),
        pytest.param(set_array("item_ids", dtype=">i8"), "item_ids: >i8 of shape", id="big-endian"),
        pytest.param(set_array("item_ids", shape=[2, 2]), r"item_ids: <i8 of shape \[2, 2\], .* \[4\]", id="shape"),
        pytest.param(set_array("item_ids", shape=[-4]), "item_ids.shape: .*positive integers", id="negative shape"),
        pytest.param(set_array("trie_codes_0", shape=[]), "trie_codes_0: missing, or of no length", id="scalar"),
        pytest.param(set_array("item_ids", bytes=32), "item_ids.bytes: 32; such an array has 160", id="bytes"),
        pytest.param(set_array("item_ids", xxh3_128="0" * 32), "version: ", id="checksum"),
        pytest.param(set_array("item_ids", more=1), "item_ids: must be exactly file, dtype,", id="array field"),
        pytest.param(lambda d: d["arrays"].update(item_ids=[]), "item_ids: must be exactly file", id="array type"),
    ],
)
def test_bad_manifests_are_refused(change: Callable[[dict], object], message: str):
    document = json.loads(Manifest.of(CATALOG).to_json())
    change(document)
    with pytest.raises(CatalogError, match=message):
        Manifest.from_json(json.dumps(document))


CATEGORY, PRICE = "attribute.category", "attribute.price"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda d: d.update(attributes=[]), r"attributes: \[\] is no dict", id="a list"),
        pytest.param(
            lambda d: d["attributes"].update(price="money"), "attributes.price: 'money'; this .* knows", id="kind"
        ),
        pytest.param(
            lambda d: d["attributes"].update(price=["text"]), r"attributes.price: \['text'\];", id="kind type"
        ),
        pytest.param(lambda d: d["attributes"].update({"../up": "text"}), "attribute '../up': no name;", id="name"),
        pytest.param(
            lambda d: d["attributes"].pop("price"), f"missing or unknown: {PRICE}.values", id="attribute not named"
        ),
        pytest.param(
            lambda d: d["attributes"].update(stock="integer"),
            "missing or unknown: attribute.stock.values",
            id="no array",
        ),
        pytest.param(
            lambda d: d["attributes"].update(price="integer"), rf"{PRICE}.values: <f8 .*, .* <i8", id="other kind"
        ),
        pytest.param(
            lambda d: d["attributes"].update(category="integer"),
            rf"unknown: {CATEGORY}.vocabulary_offsets, ",
            id="texts",
        ),
        pytest.param(
            lambda d: d["arrays"].pop(f"{CATEGORY}.vocabulary_utf8"),
            rf"{CATEGORY}.vocabulary_utf8: missing",
            id="half a vocabulary",
        ),
        pytest.param(
            lambda d: d["arrays"].pop(f"{CATEGORY}.vocabulary_offsets"),
            rf"{CATEGORY}.vocabulary_offsets: missing",
            id="the other half",
        ),
        pytest.param(set_array(f"{CATEGORY}.missing", dtype="|u1"), r"category.missing: \|u1 .* \|b1", id="mask dtype"),
        pytest.param(set_array(f"{PRICE}.values", shape=[4]), r"price.values: .*\[4\], .* \[3\]", id="length"),
        pytest.param(
            lambda d: d["arrays"].update({f"{PRICE}.more": d["arrays"][f"{PRICE}.values"]}),
            f"missing or unknown: {PRICE}.more",
            id="unknown part",
        ),
        pytest.param(lambda d: d["arrays"].pop(f"{CATEGORY}.missing"), "version: ", id="a mask that is gone"),
    ],
)
def test_bad_attributes_are_refused(change: Callable[[dict], object], message: str):
    document = json.loads(Manifest.of(ATTRIBUTES_CATALOG).to_json())
    change(document)
    with pytest.raises(CatalogError, match=message):
        Manifest.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 200_000, '{"a": 1}'], ids=range(6))
def test_manifests_that_are_none(text: str):
    with pytest.raises(CatalogError, match=r"not JSON: |format_version: "):
        Manifest.from_json(text)
