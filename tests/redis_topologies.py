"""Redis servers that fail over: a primary with a replica and a Sentinel, and a Cluster."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.redis_server import RedisServer, find_servers, free_port

VALKEY = find_servers()["valkey-server"]
SERVICE = "answers"

_SYNC_AT_ONCE = ["--repl-diskless-sync-delay", "0"]


class Watched(NamedTuple):
    """A primary, its replica, and the Sentinel that promotes the replica when the primary is gone for 0.3 s."""

    primary: RedisServer
    replica: RedisServer
    sentinel: RedisServer


@contextmanager
def watched(directory: Path) -> Iterator[Watched]:
    primary = RedisServer(VALKEY, directory, options=_SYNC_AT_ONCE)
    replica = RedisServer(VALKEY, directory, options=["--replicaof", f"127.0.0.1 {primary.port}"])
    settings = directory / "sentinel.conf"
    settings.write_text(
        f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 1\n"
        f"sentinel down-after-milliseconds {SERVICE} 300\n"
        f"sentinel failover-timeout {SERVICE} 3000\n"
    )
    sentinel = RedisServer(VALKEY, directory, options=[str(settings), "--sentinel"])
    servers = Watched(primary, replica, sentinel)
    try:
        primary.start()
        replica.start()
        _until(lambda: replica.ask("INFO", "REPLICATION")["master_link_status"] == "up")
        sentinel.start()
        _until(lambda: len(sentinel.ask("SENTINEL", "REPLICAS", SERVICE)) == 1)
        yield servers
    finally:
        for server in servers:
            server.stop()


@contextmanager
def cluster(directory: Path, slots: list[tuple[int, int] | None]) -> Iterator[list[RedisServer]]:
    """A node for each entry: a primary of these slots, first and last; for None a replica of the first node."""
    nodes = []
    for number in range(len(slots)):
        home = directory / str(number)
        home.mkdir()
        bus = ["--cluster-port", str(free_port()), "--cluster-node-timeout", "1000"]
        nodes.append(RedisServer(VALKEY, home, options=["--cluster-enabled", "yes", *bus, *_SYNC_AT_ONCE]))
    first = nodes[0]
    try:
        for node, owned in zip(nodes, slots, strict=True):
            node.start()
            if owned is not None:
                node.ask("CLUSTER", "ADDSLOTSRANGE", *owned)
            if node is not first:
                bus_port = int(node.ask("CONFIG", "GET", "cluster-port")[1])
                first.ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
        _until(lambda: all("cluster_state:ok" in str(node.ask("CLUSTER", "INFO")) for node in nodes))
        for node, owned in zip(nodes, slots, strict=True):
            if owned is None:
                node.ask("CLUSTER", "REPLICATE", first.ask("CLUSTER", "MYID"))
                _until(lambda node=node: node.ask("INFO", "REPLICATION").get("master_link_status") == "up")  # type: ignore[misc]
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def _until(holds: Callable[[], bool]) -> None:
    patience_ends = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < patience_ends, "the servers did not find each other within 15 s"
        time.sleep(0.02)
