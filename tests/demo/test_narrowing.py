"""The narrower question asks for what it says, and knows which items are left of the shop."""

from recall_service.client import InRange, IsIn
from recall_service.demo.narrowing import narrowing_for
from recall_service.demo.shop import Shop
from recall_service.demo.words import DEPARTMENTS, KINDS


def test_left_are_the_cheaper_items_of_the_last_department_without_the_history(small_shop: Shop) -> None:
    assortment, history = small_shop.assortment, small_shop.held_out.of_user(2).tolist()
    narrowing = narrowing_for(small_shop, 2)
    kinds = DEPARTMENTS[narrowing.department]
    assert KINDS[assortment.kind[history[-1]]] in kinds
    in_department = [row for row in range(600) if KINDS[assortment.kind[row]] in kinds]
    cheap = [row for row in in_department if assortment.price[row] <= narrowing.at_most]
    assert narrowing.live.tolist() == [row for row in cheap if row not in history]
    assert len(in_department) / 2 <= len(cheap) < len(in_department)


def test_the_client_is_asked_for_the_same(small_shop: Shop) -> None:
    narrowing = narrowing_for(small_shop, 2)
    assert narrowing.where == [
        IsIn("department", [narrowing.department]),
        InRange("price", at_most=narrowing.at_most),
    ]
