"""Runs scenarios over one fleet and adds up what they found."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from benchmarks.report import commit, hardware
from tests.faults.fleet import SETTINGS, Fleet, open_fleet
from tests.faults.report import FaultReport
from tests.faults.scenarios.cancels import cancels
from tests.faults.scenarios.deadlines import deadlines
from tests.faults.scenarios.engine import engine
from tests.faults.scenarios.kill import kill
from tests.faults.scenarios.overload import overload
from tests.faults.scenarios.redis import redis
from tests.faults.scenarios.sigterm import sigterm
from tests.faults.scenarios.soak import soak
from tests.faults.scenarios.stampede import stampede
from tests.faults.scenarios.swaps import swaps
from tests.faults.scenarios.versions import versions
from tests.faults.scenarios.watchdog import watchdog


class Scenario(Protocol):
    """What goes wrong, told apart by name."""

    __name__: str

    def __call__(self, fleet: Fleet, *, full: bool) -> Awaitable[FaultReport]: ...


# Those after which servers have to be started again come last.
SCENARIOS: tuple[Scenario, ...] = (
    cancels, deadlines, engine, stampede, watchdog, overload, soak, redis, versions, swaps, kill, sigterm,
)  # fmt: skip


def scenarios_named(names: Iterable[str]) -> list[Scenario]:
    """Those of the names, in their own order; all of them for none. Raises ValueError for a name that none has."""
    known = {scenario.__name__: scenario for scenario in SCENARIOS}
    wanted = set(names) or set(known)
    if strangers := sorted(wanted - set(known)):
        raise ValueError(f"only: {strangers[0]!r} is no scenario; choose from {', '.join(known)}")
    return [scenario for name, scenario in known.items() if name in wanted]


def run_scenarios(
    full: bool = False,
    only: Iterable[str] = (),
    on_report: Callable[[str, FaultReport], None] = lambda _name, _report: None,
) -> dict[str, Any]:
    """Every scenario, or those named, in its long form or its short one.

    Returns `faults` (cases, wrong, leaked and hung of all), by_scenario, hardware, settings and commit, as JSON values.
    on_report: told of each scenario as it ends. Raises ValueError for a name that no scenario has.
    """
    scenarios = scenarios_named(only)
    reports: dict[str, FaultReport] = {}
    with tempfile.TemporaryDirectory() as directory, open_fleet(Path(directory)) as fleet:
        for scenario in scenarios:
            reports[scenario.__name__] = asyncio.run(scenario(fleet, full=full))
            on_report(scenario.__name__, reports[scenario.__name__])
    counts = ("cases", "wrong", "leaked", "hung")
    return {
        "faults": {count: sum(getattr(report, count) for report in reports.values()) for count in counts},
        "by_scenario": {name: asdict(report) for name, report in reports.items()},
        "hardware": hardware(),
        "settings": {"full": full, **SETTINGS},
        "commit": commit(),
    }
