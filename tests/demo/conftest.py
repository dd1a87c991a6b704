"""A small shop that the demo's tests share."""

import pytest

from recall_service.demo.shop import Shop, make_shop


@pytest.fixture(scope="session")
def small_shop() -> Shop:
    return make_shop(seed=3, num_items=600, num_train_users=200, num_held_out_users=20)
