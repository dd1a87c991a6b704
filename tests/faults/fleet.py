"""The servers that scenarios use, started when first asked for and again when one has ended, and what is right.

Four roles share one Redis: MAIN with both tiers of cache, answers that soon are stale, and a request log; REPLICA that
has no tier of its own; OTHER_CATALOG, which has none either and serves the same bundle with other items; and SWAPPING,
whose catalogue is a store that holds both.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tests.faults.model_faults import Fault
from tests.faults.oracle import Oracle, compute_oracle
from tests.faults.questions import MAX_BEAM_WIDTH, MAX_NUM_ITEMS, OTHER_FIRST_ITEM, Question, fault_questions
from tests.faults.report import Tally
from tests.faults.server_process import ServerProcess
from tests.faults.swap_catalogs import SwapCatalogs, replace_catalog
from tests.redis_server import RedisServer, find_servers
from tests.serving.bundles import write_bundle

NUM_ORDINARY = 48
STUCK_STEP_SECONDS = 1.0
DRAIN_SECONDS = 6.0

STAMPEDE_SEED = 1  # of questions that nothing else asks, so that no cache knows them

# Small, so that the bounds of queue, rows and breaker are all met within seconds. redis_timeout_ms is not: the machine
# that tests run on is busy.
SETTINGS: Mapping[str, Any] = {
    "port": 0,
    "metrics_port": 0,
    "admin_port": 0,
    "torch_threads": 1,
    "log_level": "warning",
    "call_log_sample": 0,
    "max_rows": 48,
    "max_queue_rows": 960,
    "max_prompt_tokens": 120,
    "stuck_step_seconds": STUCK_STEP_SECONDS,
    "drain_notice_seconds": 0.3,
    "drain_seconds": DRAIN_SECONDS,
    "redis_timeout_ms": 50,
    "redis_breaker_open_seconds": 0.3,
}


class Role(Enum):
    """Which server."""

    MAIN = "main"
    REPLICA = "replica"
    OTHER_CATALOG = "other-catalog"
    SWAPPING = "swapping"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Made by `open_fleet`. directory: of bundles and logs. servers: by role, whether or not they run."""

    directory: Path
    oracle: Oracle
    redis: RedisServer
    redis_binaries: Sequence[str]
    servers: Mapping[Role, ServerProcess]
    catalogs: SwapCatalogs

    async def server(self, role: Role) -> ServerProcess:
        """The server of that role, serving."""
        server = self.servers[role]
        if not server.is_running:
            await asyncio.to_thread(server.start)
        return server

    async def settle(self, tally: Tally, *servers: ServerProcess) -> None:
        """Count whatever the servers hold for calls that have ended."""
        for server in servers:
            tally.cases += 1
            for leak in await asyncio.to_thread(server.leaks):
                tally.leak(leak)


@contextmanager
def open_fleet(directory: Path) -> Iterator[Fleet]:
    """A fleet whose servers all serve; in the end every process is killed."""
    search = {"search": {"max_beam_width": MAX_BEAM_WIDTH, "max_num_items": MAX_NUM_ITEMS}}
    bundles = [
        write_bundle(directory / "bundle", **search),
        write_bundle(directory / "other", first_item=OTHER_FIRST_ITEM, **search),
        write_bundle(directory / "updated", **search),
    ]
    catalogs = SwapCatalogs.make(directory / "store")
    replace_catalog(bundles[-1] / "catalog", catalogs.updated)
    swapping = write_bundle(directory / "bundle-of-store", catalog={"path": str(catalogs.store.path)}, **search)
    binaries = list(find_servers().values())
    redis = RedisServer(binaries[0], directory)
    with ExitStack() as processes:
        processes.callback(redis.stop)
        redis.start()
        servers = _servers(directory, bundles[0], bundles[1], swapping, redis.url)
        for server in servers.values():
            processes.callback(server.kill)
            server.spawn()  # they load while the oracle computes
        oracle = compute_oracle(bundles, NUM_ORDINARY, special_questions())
        for server in servers.values():
            server.wait_until_serving()
        yield Fleet(directory, oracle, redis, binaries, servers, catalogs)


def _servers(directory: Path, bundle: Path, other: Path, swapping: Path, redis_url: str) -> dict[Role, ServerProcess]:
    shared = {**SETTINGS, "redis_url": redis_url}
    soon_stale = {"cache_ttl_seconds": 2, "cache_stale_seconds": 60}
    all_features = {"request_log_dir": directory / "request-log", "request_log_sample": 1, **soon_stale}
    return {
        role: ServerProcess(served, directory / role.value, **shared, **settings)
        for role, served, settings in (
            (Role.MAIN, bundle, all_features),
            (Role.REPLICA, bundle, {"local_cache_bytes": 0}),
            (Role.OTHER_CATALOG, other, {"local_cache_bytes": 0}),
            (
                Role.SWAPPING,
                swapping,
                {"catalog_watch_seconds": 0.1, "cache_ttl_seconds": 2, "cache_stale_seconds": 60},
            ),
        )
    }


def special_questions() -> list[Question]:
    """Those with a fault that only takes time: they too have a right answer."""
    faults = [(Fault.SLOW, 0), (Fault.SLEEPS, 0), (Fault.SLEEPS, STAMPEDE_SEED), (Fault.HANGS, 0)]
    return [question for fault, seed in faults for question in fault_questions(fault, seed)]
