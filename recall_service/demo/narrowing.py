"""A narrower question: one department, up to a price, and nothing that the user took before. Knows no server."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recall_service.client import InRange, IsIn
from recall_service.client.predicates import Predicate
from recall_service.demo.shop import Shop


@dataclass(frozen=True, slots=True, eq=False)
class Narrowing:
    """What is asked for, and what the shop itself says is left of it.

    live: int64 [n], rows of the assortment that may be answered.
    """

    department: str
    at_most: int
    live: NDArray[np.int64]

    @property
    def where(self) -> list[Predicate]:
        """As the client asks for it, together with exclude_history."""
        return [IsIn("department", [self.department]), InRange("price", at_most=self.at_most)]


def narrowing_for(shop: Shop, user: int) -> Narrowing:
    """The department in which a held-out user was last, up to its middle price."""
    assortment, history = shop.assortment, shop.held_out.of_user(user)
    department = assortment.department[history[-1]].item()
    in_department = assortment.department == department
    at_most = math.ceil(np.median(assortment.price[in_department]))
    live = in_department & (assortment.price <= at_most)
    live[history] = False
    return Narrowing(department, at_most, np.flatnonzero(live))
