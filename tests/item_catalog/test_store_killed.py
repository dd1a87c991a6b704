"""A writer killed at any point: every acknowledged change is there, nothing is half, and the next one goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from item_catalog.updating.store import CatalogStore
from tests.item_catalog.killed_writer import FOR_EVER, after, catalog_of, kind_of, published

REPOSITORY = Path(__file__).resolve().parents[2]
NEVER = 10**9


class Writers:
    """Writers of one store, one after another."""

    def __init__(self, process: subprocess.Popen[str], store: Path) -> None:
        self.store = store
        self.acks = store.with_name("acks")
        self._process = process
        CatalogStore.create(store, catalog_of(published(0)))
        self.acks.touch()

    def start(self, number: int, touch: int | str) -> int:
        self._process.stdin.write(f"{self.store} {self.acks} {number} {touch}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait(self) -> int:
        return int(self._process.stdout.readline())

    def last_acknowledged(self) -> int:
        return int(["0", *self.acks.read_text().split()][-1])

    def live(self) -> list[int]:
        catalog = CatalogStore(self.store).load().catalog
        assert isinstance(catalog.item_ids.column, np.ndarray)
        return sorted(catalog.item_ids.column.tolist())


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    command = [sys.executable, "-m", "tests.item_catalog.killed_writer"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Writers(process, tmp_path / "store")
        process.stdin.close()


def test_killed_at_random_times(writers: Writers):
    timing = random.Random(7)
    done = 0
    for _ in range(30):
        pid = writers.start(done + 1, FOR_EVER)
        time.sleep(timing.uniform(0.0, 0.15))
        os.kill(pid, signal.SIGKILL)
        assert writers.wait() == -signal.SIGKILL
        acknowledged = max(done, writers.last_acknowledged())
        found = writers.live()
        assert found in (after(acknowledged), after(acknowledged + 1))
        done = acknowledged + (found != after(acknowledged))
    assert done > 10  # the writers got on with it


def test_killed_before_each_touch_of_a_file(writers: Writers):
    """In the first change of each kind."""
    deaths: dict[str, int] = {}
    for number in range(1, 9):
        touch = 0 if kind_of(number) not in deaths else NEVER
        while True:
            writers.start(number, touch)
            status = writers.wait()
            found = writers.live()
            if status == 0:
                break
            assert status == -signal.SIGKILL
            assert found in (after(number - 1), after(number)), (number, touch)
            deaths[kind_of(number)] = deaths.get(kind_of(number), 0) + 1
            touch += 1
        assert found == after(number)
    assert deaths.keys() == {"apply", "compact", "publish", "prune"}
    assert min(deaths.values()) > 8
    store = CatalogStore(writers.store)
    store.prune(keep=0)
    assert os.listdir(writers.store / "versions") == [store.head().base]
    assert len(os.listdir(writers.store / "updates")) == 1
