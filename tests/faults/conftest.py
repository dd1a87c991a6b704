"""One fleet for all tests of this room: starting servers takes most of the time."""

from collections.abc import Iterator

import pytest

from tests.faults.fleet import Fleet, open_fleet


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with open_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet
