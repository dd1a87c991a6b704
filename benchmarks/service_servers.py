"""Servers to put load on, each a process of its own: the real one around a small bundle, and one that does nothing."""

import json
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from item_catalog.building.builder import build_catalog
from item_catalog.storage.directory import save_catalog
from recall_service.stubs.recall.v1 import recall_pb2
from tests.serving.bundles import LAYOUT, write_bundle

NUM_ITEMS, HISTORY_LEN, NUM_QUESTIONS = 100, 20, 64
AT_ONCE = "drain_notice_seconds=0"  # a setting for a server that no balancer has to notice the end of


class Server(NamedTuple):
    """A process that serves. admin_address: where operators ask; empty for a server that has none."""

    process: "subprocess.Popen[str]"
    address: str
    admin_address: str = ""

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    @property
    def resident_bytes(self) -> int:
        """Memory of the process that is in RAM now."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * resource.getpagesize()


def bundle_of(num_items: int, directory: Path) -> Path:
    """A bundle whose answers have so many items, from a beam as wide; ids have ten characters."""
    search = {"beam_width": num_items, "max_beam_width": num_items, "num_items": num_items, "max_num_items": num_items}
    write_bundle(directory, search=search, prompt={"max_history": HISTORY_LEN}, catalog={"path": "all_sids"})
    save_catalog(build_catalog(LAYOUT, all_sids(), item_ids()), directory / "all_sids")
    return directory


def all_sids() -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Every SID of the layout, int64 [SIDs, levels]."""
    return np.stack(np.unravel_index(np.arange(np.prod(LAYOUT.codebook_sizes)), LAYOUT.codebook_sizes), axis=1)


def item_ids() -> list[str]:
    """Of all items."""
    return [f"B{number:09d}" for number in range(len(all_sids()))]


def questions() -> list[bytes]:
    """NUM_QUESTIONS requests by different histories, serialised."""
    chance, ids = np.random.default_rng(0), item_ids()
    return [
        recall_pb2.RecallRequest(
            user_id=f"user-{number}",
            scene="feed",
            history=recall_pb2.ItemHistory(item_ids=chance.choice(ids, HISTORY_LEN, replace=False).tolist()),
        ).SerializeToString()
        for number in range(NUM_QUESTIONS)
    ]


@contextmanager
def recall_server(directory: Path, *settings: str) -> Iterator[Server]:
    """`recall-service serve` of one bundle, with `settings` as NAME=VALUE, drained in the end."""
    flags = [flag for setting in settings for flag in ("--set", setting)]
    command = [
        "-m",
        "recall_service",
        "serve",
        "--bundle",
        str(directory),
        "--port",
        "0",
        "--metrics-port",
        "0",
        "--admin-port",
        "0",
    ]
    with _process([*command, *flags]) as (process, line):
        serving = json.loads(line)
        yield Server(process, serving["address"], serving["admin_address"])


@contextmanager
def stub_server(directory: Path, step_seconds: float, max_rows: int) -> Iterator[Server]:
    """The service around an engine that sleeps in every step; four times as much may wait as runs at once."""
    with _process(["-m", "benchmarks.service_stub", str(directory), str(step_seconds), str(max_rows)]) as started:
        process, line = started
        yield Server(process, json.loads(line)["address"])


@contextmanager
def echo_server(num_bytes: int, *, busy_us: float = 0.0) -> Iterator[Server]:
    """A server whose every answer is `num_bytes` long, and costs nothing but so many microseconds of its event loop."""
    with _process(["-m", "benchmarks.service_echo", str(num_bytes), str(busy_us)]) as (process, line):
        yield Server(process, f"127.0.0.1:{int(line)}")


@contextmanager
def _process(arguments: Sequence[str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A Python process and the first line it writes, which says that it serves."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as log,
        subprocess.Popen(  # noqa: S603  fixed arguments
            [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            if not (line := process.stdout.readline()):
                log.seek(0)
                raise RuntimeError(f"{' '.join(arguments)} does not serve: {log.read()}")
            yield process, line
        finally:
            process.send_signal(signal.SIGTERM)
