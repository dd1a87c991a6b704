"""The shop is what the demo says it is: whole, structured, skewed, and the same for the same seed."""

from dataclasses import fields

import numpy as np
import pytest

from recall_service.demo.assortment import LAYOUT
from recall_service.demo.shop import Histories, Shop, make_shop
from recall_service.demo.words import DEPARTMENTS, KINDS, KINDS_PER_DEPARTMENT


@pytest.fixture(scope="module")
def shop() -> Shop:
    return make_shop()


def _facts(part: object) -> list[object]:
    values = [getattr(part, field.name) for field in fields(part)]
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]


def _all_facts(shop: Shop) -> list[object]:
    return [_facts(shop.assortment), _facts(shop.train), _facts(shop.held_out), shop.targets.tolist()]


def test_equal_seeds_give_equal_shops_and_others_do_not(small_shop: Shop) -> None:
    same = make_shop(seed=3, num_items=600, num_train_users=200, num_held_out_users=20)
    other = make_shop(seed=4, num_items=600, num_train_users=200, num_held_out_users=20)
    assert _all_facts(small_shop) == _all_facts(same)
    assert small_shop.train.items.tolist() != other.train.items.tolist()


def test_default_size(shop: Shop) -> None:
    assert len(shop.assortment.item_ids) == len(shop.assortment.titles) == len(shop.assortment.sids) == 20_000
    assert shop.train.num_users == 24_000
    assert shop.held_out.num_users == len(shop.targets) == 1_000


def test_item_ids_and_titles_are_unique_and_readable(shop: Shop) -> None:
    assert shop.assortment.item_ids[123] == "sku-000123"
    assert len(set(shop.assortment.item_ids)) == len(set(shop.assortment.titles)) == 20_000
    for title, kind in zip(shop.assortment.titles[::500], shop.assortment.kind[::500], strict=True):
        assert f" {KINDS[kind]}, " in title
        assert " ".join(title.split()) == title


def test_a_few_items_share_a_sid(shop: Shop) -> None:
    LAYOUT.check(shop.assortment.sids)
    _, items_on_sid = np.unique(shop.assortment.sids, axis=0, return_counts=True)
    sharing = items_on_sid[items_on_sid > 1].sum()
    assert 0.01 < sharing / 20_000 < 0.03


def test_the_first_level_is_the_kind_and_departments_are_neighbours(shop: Shop) -> None:
    kind, first_codes = shop.assortment.kind, shop.assortment.sids[:, 0]
    assert len(np.unique(np.stack([kind, first_codes]), axis=1).T) == len(KINDS) == len(np.unique(first_codes))
    assert (np.diff(first_codes[np.argsort(kind // KINDS_PER_DEPARTMENT, kind="stable")]) >= 0).all()


def test_the_second_level_means_the_same_in_every_kind(shop: Shop) -> None:
    second_codes = shop.assortment.sids[:, 1]
    for feature in (shop.assortment.brand, shop.assortment.style):
        assert len(np.unique(np.stack([second_codes, feature]), axis=1).T) == len(np.unique(second_codes))


def test_attributes_say_what_an_item_is(shop: Shop) -> None:
    attributes = shop.assortment.attributes()
    assert list(attributes) == ["department", "brand", "price"]
    for row in range(0, 20_000, 500):
        assert KINDS[shop.assortment.kind[row]] in DEPARTMENTS[attributes["department"][row].item()]
        assert shop.assortment.titles[row].startswith(f"{attributes['brand'][row]} ")


def test_prices_are_usual_for_the_kind(shop: Shop) -> None:
    price, kind = shop.assortment.price, shop.assortment.kind
    assert price.min() > 0
    assert (np.round(price, 1) == price).all()
    within = np.mean([np.log(price[kind == one]).std() for one in np.unique(kind)])
    assert within < 0.6 * np.log(price).std()


def test_items_by_sid_holds_the_rows_asked_for(shop: Shop) -> None:
    sids, rows = shop.assortment.sids, np.array([4, 2, 900])
    items = shop.assortment.items_by_sid(rows)
    assert sorted(item for items_on_sid in items.values() for item in items_on_sid) == [
        "sku-000002",
        "sku-000004",
        "sku-000900",
    ]
    assert all(f"sku-{row:06d}" in items[tuple(sids[row].tolist())] for row in rows.tolist())


def test_popularity_is_skewed_but_no_item_rules(shop: Shop) -> None:
    counts = np.sort(np.bincount(shop.train.items, minlength=20_000))[::-1]
    top_percent_share = counts[:200].sum() / counts.sum()
    assert 0.08 < top_percent_share < 0.3
    assert counts[0] / counts.sum() < 0.01


def test_held_out_users_are_not_trained_on(shop: Shop) -> None:
    assert not set(shop.train.user_ids) & set(shop.held_out.user_ids)
    assert len({*shop.train.user_ids, *shop.held_out.user_ids}) == 25_000


@pytest.mark.parametrize("part", ["train", "held_out"])
def test_histories_lie_one_after_the_other(shop: Shop, part: str) -> None:
    histories: Histories = getattr(shop, part)
    lens = np.diff(histories.offsets)
    assert lens.min() == 5
    assert lens.max() == 24
    assert histories.offsets[-1] == len(histories.items)
    assert histories.items.max() < 20_000
    assert histories.of_user(7).tolist() == histories.items[histories.offsets[7] : histories.offsets[8]].tolist()
    assert histories.last_items[7] == histories.of_user(7)[-1]


def test_what_comes_next_depends_on_the_whole_history(shop: Shop) -> None:
    """The kind taken next was seen in the history before the last item far oftener than in another user's."""
    kind = shop.assortment.kind
    earlier = [set(kind[shop.held_out.of_user(user)[:-1]].tolist()) for user in range(1_000)]
    next_kind = kind[shop.targets].tolist()
    own = np.mean([wanted in kinds for wanted, kinds in zip(next_kind, earlier, strict=True)])
    strangers = np.mean([wanted in kinds for wanted, kinds in zip(next_kind, earlier[1:] + earlier[:1], strict=True)])
    assert own > 4 * strangers


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_items": 191}, "num_items: 191; give at least 192"),
        ({"num_train_users": 0}, "users: 0 to train"),
        ({"num_held_out_users": 0}, "0 held out; give at least 1"),
    ],
    ids=["items", "train", "held-out"],
)
def test_impossible_sizes_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_shop(**sizes)
