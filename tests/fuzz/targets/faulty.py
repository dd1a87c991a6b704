"""A target with every kind of fault, one for each of its inputs: what the fuzzer's own tests are made with."""

import os
import pickle
import random
import time
from pathlib import Path

from tests.fuzz.hostile import Broken, Hostile

FAULTS = ("none", "error", "broken", "panic", "pickle", "swallowed", "slow", "large", "exit", "hang")


class Target:
    """The data of an input is its fault, in the middle of bytes that do not matter."""

    def __init__(self, directory: Path) -> None:
        self._kept: list[bytes] = []

    def make(self, generator: random.Random) -> Hostile:
        return Hostile("fault", generator.randbytes(30) + generator.choice(FAULTS).encode() + generator.randbytes(30))

    def check(self, hostile: Hostile) -> None:
        for fault in FAULTS:
            if fault.encode() in hostile.data:
                getattr(self, f"_{fault}")()

    def close(self) -> None:
        self._kept.clear()

    def _none(self) -> None:
        pass

    def _error(self) -> None:
        raise KeyError("of the reader")

    def _broken(self) -> None:
        raise Broken("a promise")

    def _panic(self) -> None:
        raise BaseException("as Rust does it")

    def _pickle(self) -> None:
        pickle.loads(b"cos\nsystem\n(S'false'\ntR.")

    def _swallowed(self) -> None:
        try:
            self._pickle()
        except Broken:
            return

    def _slow(self) -> None:
        until = time.process_time() + 2.05
        while time.process_time() < until:
            pass

    def _large(self) -> None:
        self._kept.append(b"x" * (300 * 1024**2))
        self._kept.clear()

    def _exit(self) -> None:
        os._exit(7)

    def _hang(self) -> None:
        time.sleep(600)
