"""Line and dot charts as SVG text: axes, ticks, series. Colours and fonts are the page's, by class names.

Everything that is given as text is escaped here.
"""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

WIDTH, HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 16, 12, 50


class Axis(NamedTuple):
    """A range of values on the page. ticks: where it is marked, and with what. scale: value to position, monotonic."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    scale: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.asarray

    def shares(self, values: ArrayLike) -> NDArray[np.float64]:
        """How far along the axis values lie, 0 to 1 between low and high."""
        scaled = self.scale(np.asarray(values, np.float64))
        low, high = self.scale(np.array([self.low, self.high]))
        share: NDArray[np.float64] = (scaled - low) / (high - low)
        return share


class Series(NamedTuple):
    """A line through points, or the points alone. style: class names of the page."""

    x: ArrayLike
    y: ArrayLike
    style: str
    is_dots: bool = False


def chart(
    *, description: str, x: Axis, y: Axis, series: Sequence[Series], limits: Sequence[tuple[float, str]] = ()
) -> str:
    """An `svg` element that says `description` to those who cannot see it.

    limits: values of y with a line and a word of their own.
    """
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(description)}">']
    parts += [_grid(x, y)]
    parts += [_dots(x, y, one) if one.is_dots else _line(x, y, one) for one in series]
    for value, word in limits:
        height = _down(y.shares(value))
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(
            f'<text class="limit" x="{WIDTH - _RIGHT}" y="{height - 5:.1f}" text-anchor="end">{escape(word)}</text>'
        )
    return "".join([*parts, "</svg>"])


def linear_axis(label: str, low: float, high: float, form: Callable[[float], str]) -> Axis:
    """From low to high, marked at round values; of one value alone, some room is made around it."""
    if not high > low:
        low, high = low - abs(low) * 0.05 - 1e-3, high + abs(high) * 0.05 + 1e-3
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [round(place * step, 12) for place in range(first, last + 1)]
    return Axis(label, low, high, tuple((value, form(value)) for value in values))


def log_axis(label: str, low: float, high: float, form: Callable[[float], str]) -> Axis:
    """From the 1, 2 or 5 times a power of ten at or below low to one above high, both positive; marked there."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 2)
    marks = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    below = max(place for place, mark in enumerate(marks) if mark <= low * (1 + 1e-9))
    above = min(place for place, mark in enumerate(marks) if mark > high * (1 + 1e-9))
    within = marks[below : above + 1]
    shown = within if len(within) <= 9 else [mark for mark in within if f"{mark:.0e}".startswith("1")]
    return Axis(label, within[0], within[-1], tuple((mark, form(mark)) for mark in shown), np.log10)


def _grid(x: Axis, y: Axis) -> str:
    parts = []
    for value, text in y.ticks:
        height = float(_down(y.shares(value)))
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{height + 5:.1f}" text-anchor="end">{escape(text)}</text>')
    for value, text in x.ticks:
        across = float(_across(x.shares(value)))
        parts.append(f'<line class="grid" x1="{across:.1f}" x2="{across:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{across:.1f}" y="{HEIGHT - _BOTTOM + 20}" text-anchor="middle">{escape(text)}</text>')
    parts.append(
        f'<text class="axis" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(x.label)}</text>"
        f'<text class="axis" transform="translate(14 {(_TOP + HEIGHT - _BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y.label)}</text>'
    )
    return "".join(parts)


def _line(x: Axis, y: Axis, series: Series) -> str:
    points = " ".join(f"{across:.1f},{down:.1f}" for across, down in _places(x, y, series))
    return f'<polyline class="{escape(series.style)}" points="{points}"/>'


def _dots(x: Axis, y: Axis, series: Series) -> str:
    """One path of lines without length, whose round ends are the dots: a few bytes each."""
    dots = "".join(f"M{across:.1f} {down:.1f}h0" for across, down in _places(x, y, series))
    return f'<path class="dots {escape(series.style)}" d="{dots}"/>'


def _places(x: Axis, y: Axis, series: Series) -> list[tuple[float, float]]:
    across, down = _across(x.shares(series.x)), _down(y.shares(series.y))
    return list(zip(across.tolist(), down.tolist(), strict=True))


def _across(share: NDArray[np.float64]) -> NDArray[np.float64]:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _down(share: NDArray[np.float64]) -> NDArray[np.float64]:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)
