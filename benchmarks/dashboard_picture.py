"""What does the dashboard show of a bad two minutes? Makes docs/dashboard.svg.

    python -m benchmarks.dashboard_picture --out docs/dashboard.svg

The real server on the demo's bundle, a real Redis and a real Prometheus whose clock for rules runs sixty times as fast.
Traffic is steady but for two incidents: Redis hangs for a while, and later one caller asks for a great deal.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.report import commit, hardware, print_json_line
from deploy.grafana.render import Window, render
from deploy.prometheus.local import running_prometheus
from recall_service.client import AsyncRecallClient, RecallClientError
from recall_service.demo.prepare import PreparedDemo, prepare_demo
from tests.redis_server import RedisServer, find_servers

_SETTINGS = {"max_rows": 1024, "local_cache_bytes": 400_000, "redis_breaker_open_seconds": 2, "call_log_sample": 0}
_RATE_SECONDS = 5.0  # the window of rates in the picture: five scrapes
_SCENES, _SCENE_SHARES = ("feed", "search", "mail"), (0.6, 0.3, 0.1)


@dataclass(frozen=True, slots=True)
class Story:
    """When what happens, in seconds from the start, and how many questions come a second."""

    picture_begins: float = 10.0  # what comes before is warm-up
    redis_hangs: tuple[float, float] = (40.0, 60.0)
    overload: tuple[float, float] = (90.0, 96.0)
    ends: float = 130.0
    usual_rate: float = 20.0
    overload_rate: float = 70.0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="SVG to write")
    parser.add_argument("--demo", type=Path, default=Path(".demo"), help="where the demo's bundle is kept")
    arguments = parser.parse_args()
    demo, story = prepare_demo(arguments.demo), Story()
    with TemporaryDirectory() as name:
        directory = Path(name)
        redis = RedisServer(find_servers()["valkey-server"], directory)
        redis.start()
        try:
            with (
                _server(demo.bundle_directory, directory, redis.url) as serving,
                running_prometheus(directory, urlsplit(serving["metrics_url"]).netloc) as prometheus,
            ):
                started = time.time()
                ended = asyncio.run(_play(story, demo, serving["address"], redis))
                window = Window(started + story.picture_begins, started + story.ends, _RATE_SECONDS)
                render(prometheus, window, arguments.out)
                alerts = sorted({rule["name"] for rule in prometheus.rules() if rule.get("state") == "firing"})
        finally:
            redis.thaw()
            redis.stop()
    facts = {"seconds": story.ends, "ended": ended, "firing_at_the_end": alerts}
    print(f"{arguments.out}: {arguments.out.stat().st_size // 1024} KiB; {json.dumps(facts)}")
    print_json_line({"benchmark": "dashboard_picture", **facts, "hardware": hardware(), "commit": commit()})


@contextmanager
def _server(bundle: Path, directory: Path, redis_url: str) -> Iterator[dict[str, Any]]:
    settings = _SETTINGS | {"redis_url": redis_url, "request_log_dir": directory / "requests"}
    arguments = ["--port", "0", "--metrics-port", "0", "--admin-port", "0"]
    arguments += [part for setting in settings.items() for part in ("--set", "{}={}".format(*setting))]
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  our own arguments
            [sys.executable, "-m", "recall_service", "serve", "--bundle", str(bundle), *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            sys.exit(f"the server did not start: {(directory / 'server.log').read_text()[-2_000:]}")
        yield json.loads(line)
    finally:
        process.terminate()
        process.communicate()


async def _play(story: Story, demo: PreparedDemo, address: str, redis: RedisServer) -> dict[str, int]:
    """Ask as the story goes. Returns how many questions ended how."""
    ended: dict[str, int] = {}
    started = time.monotonic()

    async def at(moment: float, act: Callable[[], None]) -> None:
        await asyncio.sleep(started + moment - time.monotonic())
        act()

    async with AsyncRecallClient(address, timeout=2.0) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(at(story.redis_hangs[0], redis.freeze))
        tasks.create_task(at(story.redis_hangs[1], redis.thaw))
        random = np.random.default_rng(5)
        elapsed = 0.0
        while elapsed < story.ends:
            is_overload = story.overload[0] <= elapsed < story.overload[1]
            elapsed += random.exponential(1 / (story.overload_rate if is_overload else story.usual_rate))
            await asyncio.sleep(max(started + elapsed - time.monotonic(), 0))
            tasks.create_task(_ask(client.recall, _question(random, demo, is_overload), ended))
    return ended


def _question(random: np.random.Generator, demo: PreparedDemo, is_overload: bool) -> dict[str, Any]:
    """One question of the story: most users come back, and a few questions are odd in every way there is."""
    users = demo.shop.held_out
    user = min(int(random.zipf(1.3)), users.num_users) - 1
    history = [demo.shop.assortment.item_ids[row] for row in users.of_user(user)]
    scene = str(random.choice(_SCENES, p=_SCENE_SHARES))
    question: dict[str, Any] = {"history": history, "num_items": 100, "scene": scene}
    odd = random.random()
    if is_overload and odd > 0.3:
        question |= {"scene": "mail", "beam_width": 400, "cache": "bypass"}
    elif odd < 0.02:
        question["history"] = []
    elif odd < 0.05:
        question["history"] = [*history, "withdrawn"]
    elif odd < 0.10:
        question["beam_width"] = 50  # narrower than the answer is long
    elif odd < 0.1005:
        question |= {"cache": "bypass", "timeout": 0.003}
    return question


async def _ask(recall: Callable[..., Awaitable[Any]], question: dict[str, Any], ended: dict[str, int]) -> None:
    try:
        end = (await recall(**question)).served_from
    except RecallClientError as error:
        end = error.code.name
    ended[end] = ended.get(end, 0) + 1


if __name__ == "__main__":
    main()
