"""A clock that goes on only when told: how long a test itself takes then changes nothing."""

from types import ModuleType

import pytest


class FakeTime:
    """In place of a module's `time`. Never of `time.monotonic` itself where asyncio runs: its timers go by that."""

    def __init__(self) -> None:
        self._passed = 0.0

    def wait(self, seconds: float) -> None:
        self._passed += seconds

    def monotonic(self) -> float:
        return 1_000.0 + self._passed

    perf_counter = monotonic

    def time(self) -> float:
        return 1_700_000_000.0 + self._passed

    @classmethod
    def of(cls, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> "FakeTime":
        """One clock for all these modules, from here on."""
        clock = cls()
        for module in modules:
            monkeypatch.setattr(module, "time", clock)
        return clock
