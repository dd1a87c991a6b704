"""The figures tell an answer that keeps to its question from one that does not."""

from dataclasses import replace

import numpy as np
import pytest

from recall_service.client import RecalledItem, RecallResult
from recall_service.client.result import to_result
from recall_service.demo.figures import check_figures, narrowing_figures, update_figures
from recall_service.demo.narrowing import Narrowing, narrowing_for
from recall_service.demo.shop import Shop
from recall_service.demo.sold_out import SoldOut
from recall_service.errors import SetupError
from recall_service.stubs.recall.v1 import recall_pb2


@pytest.fixture
def narrowing(small_shop: Shop) -> Narrowing:
    return narrowing_for(small_shop, 2)


def _answer(shop: Shop, rows: list[int], version: str = "v1") -> RecallResult:
    items = tuple(
        RecalledItem(shop.assortment.item_ids[row], -1.0, tuple(shop.assortment.sids[row].tolist()), (), ())
        for row in rows
    )
    return replace(to_result(recall_pb2.RecallResponse()), items=items, catalog_version=version)


def test_every_item_that_is_left_completes_the_narrower_answer(small_shop: Shop, narrowing: Narrowing) -> None:
    figures = narrowing_figures(small_shop, narrowing, _answer(small_shop, narrowing.live.tolist()))
    assert figures["filtered_valid"] == figures["filtered_items"] == figures["filtered_left"] == len(narrowing.live)
    assert figures["filtered_complete"]


def test_an_item_too_few_or_of_others_is_seen(small_shop: Shop, narrowing: Narrowing) -> None:
    live = narrowing.live.tolist()
    stranger = int(np.setdiff1d(np.arange(600), narrowing.live)[0])
    assert not narrowing_figures(small_shop, narrowing, _answer(small_shop, live[1:]))["filtered_complete"]
    figures = narrowing_figures(small_shop, narrowing, _answer(small_shop, [*live[1:], stranger]))
    assert figures["filtered_valid"] == figures["filtered_items"] - 1
    assert not figures["filtered_complete"]


@pytest.mark.parametrize(
    ("meanwhile", "afterwards", "seen", "undone"),
    [
        pytest.param(([2, 3], "v2"), ([1, 2], "v1"), True, True, id="gone and back"),
        pytest.param(([1, 2], "v2"), ([1, 2], "v1"), False, True, id="still recalled"),
        pytest.param(([2, 3], "v1"), ([1, 2], "v1"), False, True, id="same version"),
        pytest.param(([2, 3], "v2"), ([1, 2], "v3"), True, False, id="another version in the end"),
        pytest.param(([2, 3], "v2"), ([2, 3], "v1"), True, False, id="not back"),
    ],
)
def test_an_update_is_seen_and_undone(
    small_shop: Shop, meanwhile: tuple[list[int], str], afterwards: tuple[list[int], str], seen: bool, undone: bool
) -> None:
    sold_out = SoldOut("sku-000001", 0.0123, _answer(small_shop, *meanwhile), _answer(small_shop, *afterwards))
    figures = update_figures(_answer(small_shop, [1, 2]), sold_out)
    assert figures == {"update_live_ms": 12.3, "update_seen": seen, "update_undone": undone}


def test_what_is_not_so_is_an_error_and_a_count_of_none_is_not() -> None:
    check_figures({"proven_count": 0, "equals_brute_force": True})
    with pytest.raises(SetupError, match=r'demo: not so: update_seen; please report this: .*"items": 100'):
        check_figures({"items": 100, "update_seen": False, "update_undone": True})
