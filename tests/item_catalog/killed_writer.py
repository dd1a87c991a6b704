"""A process that changes a store until it dies. For each line "store acks number touch" it reads, it forks a writer.

With a number for touch, the writer does the change `number` and dies in front of the touch-th thing it does to a file,
or exits with 0 when there are fewer. With FOR_EVER, it does the changes from `number` on, and appends each to the file
`acks` once it is acknowledged, until somebody kills it. Imports are paid once: a fork is there within milliseconds.
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path

import numpy as np

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.sid import SidLayout
from item_catalog.updating.store import CatalogStore
from item_catalog.updating.updates import ItemUpdates, ItemUpsert

LAYOUT = SidLayout((8, 8))
FOR_EVER = "for-ever"
FILE_EVENTS = {"open", "os.fsync", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"}


def published(number: int) -> list[int]:
    return [1, 2, 10_000 + number]


def catalog_of(ids: list[int]) -> Catalog:
    return build_catalog(LAYOUT, np.array([[id_ % 8, id_ // 8 % 8] for id_ in ids]), np.array(ids))


def after(number: int) -> list[int]:
    """The ids that are live once the changes 0..number are done."""
    ids = published(0)
    for change in range(1, number + 1):
        kind = kind_of(change)
        if kind == "publish":
            ids = published(change)
        elif kind == "apply":
            ids = sorted({*ids, 100 + change} - {100 + change - 3})
    return sorted(ids)


def kind_of(number: int) -> str:
    return {3: "compact", 6: "publish", 8: "prune"}.get(number % 10, "apply")


def change(store: CatalogStore, number: int) -> None:
    kind = kind_of(number)
    if kind == "compact":
        store.compact(store.load())
    elif kind == "publish":
        store.publish(catalog_of(published(number)))
    elif kind == "prune":
        store.prune(keep=1)
    else:
        item_id = 100 + number
        upsert = ItemUpsert(str(item_id), (item_id % 8, item_id // 8 % 8))
        store.apply(ItemUpdates((upsert,), (str(item_id - 3),)), store.load())


def write_until_killed(path: str, acks: str, first: int) -> None:
    store = CatalogStore(Path(path))
    descriptor = os.open(acks, os.O_WRONLY | os.O_APPEND)
    for number in range(first, first + 10_000):
        change(store, number)
        os.write(descriptor, f"{number}\n".encode())


def write_one_and_die(path: str, number: int, touch: int) -> None:
    """Do one change, and die in front of the `touch`-th thing that is done to a file."""
    store = CatalogStore(Path(path))
    touches = count()
    fsync = os.fsync

    def die_in_time(event: str, *_: object) -> None:
        if event in FILE_EVENTS and next(touches) == touch:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted_fsync(descriptor: int) -> None:
        die_in_time("os.fsync")
        fsync(descriptor)

    os.fsync = counted_fsync
    sys.addaudithook(die_in_time)
    change(store, number)


def main() -> None:
    for line in sys.stdin:
        path, acks, number, touch = line.split()
        pid = os.fork()
        if not pid:
            if touch == FOR_EVER:
                write_until_killed(path, acks, int(number))
            else:
                write_one_and_die(path, int(number), int(touch))
            os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
