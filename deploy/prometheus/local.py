"""A real Prometheus on a free loopback port, with our own config and rules, sixty times as fast.

An hour of the rules passes in a minute: scrapes and evaluations come every second, and every duration in the rules is
divided by sixty. For tests, and for pictures of the dashboard. Needs the `prometheus` binary.
"""

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

SOURCE = Path(__file__).resolve().parent
SPEED = 60
_START_SECONDS = 20.0
_DURATION = re.compile(r"(\[|for: |offset )(\d+)([smhd])\b")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Series(NamedTuple):
    """One series of an answer: its labels, and its values by time in seconds since 1970."""

    labels: Mapping[str, str]
    values: list[tuple[float, float]]


class LocalPrometheus:
    """What a running Prometheus answers. url: where it listens."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expr: str) -> list[Series]:
        """The value of `expr` now."""
        found = self._get("query", query=expr)["result"]
        return [_series(series["metric"], [series["value"]]) for series in found]

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """The values of `expr` from `start` to `end`, every `step` seconds."""
        found = self._get("query_range", query=expr, start=start, end=end, step=step)["result"]
        return [_series(series["metric"], series["values"]) for series in found]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with its health and its last error."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urlopen(f"{self.url}/-/ready", timeout=1) as response:  # noqa: S310  our own address
                return bool(response.status == 200)
        except (URLError, OSError):
            return False

    def _get(self, path: str, **arguments: Any) -> dict[str, Any]:
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(arguments)}", timeout=10) as response:  # noqa: S310
            return dict(json.load(response)["data"])


@contextmanager
def running_prometheus(directory: Path, target: str) -> Iterator[LocalPrometheus]:
    """A Prometheus that scrapes `target`, "host:port", and keeps everything in `directory`, which exists.

    Raises RuntimeError with the end of its log when it does not start.
    """
    binary = shutil.which("prometheus")
    if binary is None:
        raise RuntimeError("no prometheus in PATH; install it, on Debian by `apt-get install prometheus`")
    config = _fast_config(directory, target)
    address = f"127.0.0.1:{_free_port()}"
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  our own arguments
            [
                binary,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
                "--enable-feature=exemplar-storage",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        prometheus = LocalPrometheus(f"http://{address}")
        patience_ends = time.monotonic() + _START_SECONDS
        while not prometheus.is_ready():
            if process.poll() is not None or time.monotonic() > patience_ends:
                raise RuntimeError(f"prometheus did not start: {(directory / 'prometheus.log').read_text()[-2_000:]}")
            time.sleep(0.05)
        yield prometheus
    finally:
        process.terminate()
        process.wait(_START_SECONDS)


def shortened(rules: str) -> str:
    """The text of a rule file with its durations divided by SPEED, none below a second."""

    def shorten(found: re.Match[str]) -> str:
        return f"{found[1]}{max(int(found[2]) * _UNIT_SECONDS[found[3]] // SPEED, 1)}s"

    return _DURATION.sub(shorten, rules)


def _fast_config(directory: Path, target: str) -> Path:
    """prometheus.yml, and rules/ beside it, as this directory's but for the target and the pace."""
    config = yaml.safe_load((SOURCE / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = dict.fromkeys(config["global"], "1s")
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    (directory / "rules").mkdir()
    for rules in (SOURCE / "rules").glob("*.yml"):
        (directory / "rules" / rules.name).write_text(shortened(rules.read_text(encoding="utf-8")), encoding="utf-8")
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def _series(labels: dict[str, str], values: list[tuple[float, str]]) -> Series:
    return Series(labels, [(moment, float(value)) for moment, value in values])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
