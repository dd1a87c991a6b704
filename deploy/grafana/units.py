"""Numbers for people, by Grafana's names of units."""

from collections.abc import Callable

from deploy.grafana.panels import Unit


def shown(value: float, unit: Unit) -> str:
    """A value with its unit, as short as an axis needs it."""
    return _SHOWN[unit](value)


def _seconds(value: float) -> str:
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return "0 s"


def _bytes(value: float) -> str:
    for size, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g} B"


def _count(value: float) -> str:
    for size, name in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g}"


def _rate(value: float) -> str:
    return f"{_count(value)}/s"


def _percent(value: float) -> str:
    return f"{value * 100:.3g} %" if abs(value) < 10 else f"{value * 100:,.0f} %"


_SHOWN: dict[Unit, Callable[[float], str]] = {
    "none": _count,
    "short": _count,
    "percentunit": _percent,
    "s": _seconds,
    "bytes": _bytes,
    "reqps": _rate,
    "ops": _rate,
    "cps": _rate,
}
