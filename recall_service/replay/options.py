"""What the words of the command line mean: targets, timing, warm-up, where results go. Knows nothing of typer."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from recall_service.client.channel import Access
from recall_service.errors import SettingsError
from recall_service.replay.grpc_target import GrpcTarget
from recall_service.replay.plan import Plan, recorded_timing
from recall_service.replay.schedule import Schedule, as_fast_as_possible, fixed_rate, poisson
from recall_service.replay.target import Target

LOGGED = "logged"
MakeTarget = Callable[[], Target]


def targets(address: str | None, bundle: Path | None, against: str | None, access: Access) -> Mapping[str, MakeTarget]:
    """Who is asked, as `target`, and whom that is compared with, as `against`, unless it is the log or nobody.

    access: how servers are asked. Raises SettingsError unless just one of address and bundle is given, and for words
    that name no target.
    """
    if (address is None) == (bundle is None):
        raise SettingsError("--target or --bundle: give one of them, to say who is to be asked")
    asked = {"target": partial(_bundle, bundle) if bundle is not None else _server(str(address), access)}
    if against is None or against == LOGGED:
        return asked
    is_directory = Path(against).is_dir()
    return asked | {"against": partial(_bundle, Path(against)) if is_directory else _server(against, access)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When questions are to be sent: as recorded, unless one of the others is given. Rates are per second.

    Raises SettingsError for two that contradict each other.
    """

    rate: float | None = None
    poisson: float | None = None
    speed: float | None = None
    fast: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.flags) > 1:
            raise SettingsError(f"{' and '.join(self.flags)} contradict each other; give one of them")

    @property
    def flags(self) -> list[str]:
        """Those that were given."""
        return [f"--{name}" for name in ("rate", "poisson", "speed", "fast") if getattr(self, name)]

    @property
    def words(self) -> str:
        """For the report."""
        if self.rate:
            return f"{self.rate:g} per second, evenly spaced"
        if self.poisson:
            return f"{self.poisson:g} per second, Poisson arrivals"
        return "as fast as possible" if self.fast else f"as recorded, {self.speed or 1.0:g} times as fast"

    @property
    def schedule(self) -> Schedule:
        """That of all questions."""
        if self.rate:
            return fixed_rate(self.rate)
        if self.poisson:
            return poisson(self.poisson, self.seed)
        return as_fast_as_possible() if self.fast else recorded_timing(self.speed or 1.0)

    def of_part(self, num_side_by_side: int, number: int) -> Schedule:
        """That of one of the files that are replayed side by side: its share of the rate, and chance of its own."""
        rate, poisson_rate = (value and value / num_side_by_side for value in (self.rate, self.poisson))
        return replace(self, rate=rate, poisson=poisson_rate, seed=self.seed + number).schedule


def with_warm_up(plan: Plan, text: str, *, can_count: bool) -> Plan:
    """The plan with a warm-up of seconds, "10", or of a share of its questions, "5%", which are counted once for that.

    can_count: whether a share makes sense. Raises SettingsError naming the value and the remedy.
    """
    percent = text.endswith("%")
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < (100 if percent else float("inf")) or (percent and not can_count):
        also = ", or a share of all questions, as in 5%" if can_count else ""
        raise SettingsError(f"--warm-up {text!r}: give seconds, as in 10{also}")
    if not percent:
        return replace(plan, settings=replace(plan.settings, warm_up_seconds=value))
    number = round(sum(1 for _ in plan.questions()) * value / 100)
    return replace(plan, settings=replace(plan.settings, warm_up_questions=number))


def new_directory() -> Path:
    """Where results go unless told otherwise: a directory here, named by the time, that nobody has made yet."""
    return Path(f"replay-{datetime.now():%Y%m%d-%H%M%S}")


def _server(address: str, access: Access) -> MakeTarget:
    if not re.fullmatch(r"[^/:\s]+:\d+|\[[^/\s]+\]:\d+|unix:.+|[a-z]+://.+", address):
        raise SettingsError(f"{address!r} is no address and no directory; give host:port, as in 127.0.0.1:50051")
    return partial(GrpcTarget, address, access)


def _bundle(directory: Path) -> Target:
    """With the engine as the environment's settings have it."""
    from recall_service.config import load_settings
    from recall_service.replay.bundle_target import BundleTarget  # brings torch, which asking a server does not need

    return BundleTarget(load_settings(None, {"bundles": [directory], "default_bundle": ""}))
