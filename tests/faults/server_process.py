"""One server process: started, asked how it is, signalled, killed, started again where it was."""

import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import IO, NamedTuple

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 60.0

_SAMPLE = re.compile(r"^(recall_|grpc_)(\S+) (\S+)$", re.MULTILINE)

# What must be 0 once nobody asks any more. Pages that are kept for later prompts are no leak.
_BUSY_GAUGES = (
    "recall_queue_depth",
    "recall_inflight_requests",
    'recall_beam_rows{state="used"}',
    'recall_context_pages{state="used"}',
)


class Usage(NamedTuple):
    """What a process has of the machine."""

    rss_bytes: int
    threads: int
    descriptors: int


class ServerProcess:
    """`python -m tests.faults.serve` over one bundle. `settings` by name; it logs to a file in `directory`.

    A second start listens on the ports of the first.
    """

    def __init__(self, bundle: Path, directory: Path, **settings: object) -> None:
        directory.mkdir(parents=True)
        self.log = directory / "log"
        self._bundle, self._settings = bundle, settings
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.address = self.admin_address = self.metrics_url = ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start it, and do not wait until it serves."""
        settings = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "tests.faults.serve", "--bundle", str(self._bundle), *settings]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._lines = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=_read_lines, args=(self._process.stdout, self._lines), daemon=True).start()

    def wait_until_serving(self) -> None:
        """Until it says where it listens. Raises RuntimeError with the end of its log when it does not."""
        serving = json.loads(self._next_line(START_SECONDS))
        self.address, self.metrics_url = serving["address"], serving["metrics_url"]
        self.admin_address = serving["admin_address"]
        ports = {"port": self.address, "metrics_port": self.metrics_url.removesuffix("/metrics")}
        self._settings |= {name: address.rpartition(":")[2] for name, address in ports.items()}

    def start(self) -> None:
        self.spawn()
        self.wait_until_serving()

    def signal(self, number: signal.Signals) -> None:
        self._running.send_signal(number)

    def exit_code(self, patience_seconds: float) -> int | None:
        """How it ended; None when it still runs after so long."""
        try:
            code = self._running.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            return None
        self._close_pipes()
        return code

    def kill(self) -> None:
        """As `kill -9` does; without effect on one that ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close_pipes()

    def metrics(self) -> dict[str, float]:
        """Every sample of ours, by name and labels as they are written."""
        with urllib.request.urlopen(self.metrics_url, timeout=10) as answer:
            text = answer.read().decode()
        return {prefix + rest: float(value) for prefix, rest, value in _SAMPLE.findall(text)}

    def leaks(self, patience_seconds: float = 5.0) -> list[str]:
        """What is still held for calls that have ended; empty as soon as all of it is free."""
        patience_ends = time.monotonic() + patience_seconds
        while (held := self._held()) and time.monotonic() < patience_ends:
            time.sleep(0.05)
        return held

    def usage(self) -> Usage:
        proc = Path(f"/proc/{self._running.pid}")
        rss_kib = re.search(r"^VmRSS:\s+(\d+) kB$", (proc / "status").read_text(), re.MULTILINE)
        assert rss_kib is not None
        return Usage(int(rss_kib[1]) * 1024, len(list((proc / "task").iterdir())), len(list((proc / "fd").iterdir())))

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "not started"
        return self._process

    def _held(self) -> list[str]:
        samples = self.metrics()
        held = [f"{name} = {samples[name]:g}" for name in _BUSY_GAUGES if samples[name]]
        calls = [
            sum(value for name, value in samples.items() if name.startswith(f"grpc_server_{kind}_total"))
            for kind in ("started", "handled")
        ]
        if calls[0] != calls[1]:
            held.append(f"{calls[0] - calls[1]:g} calls have not ended")
        stdin = self._running.stdin
        assert stdin is not None
        stdin.write("held\n")
        stdin.flush()
        return held + json.loads(self._next_line(10))

    def _next_line(self, patience_seconds: float) -> str:
        try:
            line = self._lines.get(timeout=patience_seconds)
        except queue.Empty:
            line = ""
        if not line:
            raise RuntimeError(f"the server said nothing; the end of its log:\n{self.log.read_text()[-2_000:]}")
        return line

    def _close_pipes(self) -> None:
        for pipe in (self._running.stdin, self._running.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:  # what was still to be written is of no use to one that ended
                continue


def _read_lines(pipe: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    """Hand over line by line, and "" in the end."""
    try:
        for line in pipe:
            lines.put(line)
    except ValueError:  # closed, for the process has ended
        pass
    lines.put("")
