"""What reading somebody's bytes must never lead to: unpickling, another process, a connection, a file deleted.

Python reports these to audit hooks, which cannot be taken out again: only a process that does nothing but fuzz has one.
"""

import sys
from typing import Any

from tests.fuzz.hostile import Broken

_EVENTS = frozenset(
    {
        *("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen"),
        *("socket.connect", "socket.getaddrinfo", "urllib.Request", "ctypes.dlopen"),
    }
)


class Watch:
    """Raises Broken out of whatever does something forbidden while `active`, and remembers it."""

    def __init__(self) -> None:
        self.active = False
        self.seen: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.active and event in _EVENTS:
            self.seen.append(f"{event} {arguments!r}"[:500])
            raise Broken(f"forbidden: {self.seen[-1]}")
