"""A picture of the dashboard from a Prometheus, without Grafana: the same rows, panels and expressions.

    python -m deploy.grafana.render --prometheus http://127.0.0.1:9090 --minutes 60 --out dashboard.svg

Needs matplotlib. Knows no metric and nothing of the service.
"""

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from deploy.grafana.dashboard import COLUMNS, VERSION_MARKS, lines_of
from deploy.grafana.panels import Panel, Row
from deploy.grafana.promql import fill_in
from deploy.grafana.rows import ROWS
from deploy.grafana.units import shown
from deploy.prometheus.local import LocalPrometheus, Series

_COLOURS = (
    "#3f9c35",
    "#d9a400",
    "#3274d9",
    "#e0752d",
    "#c4162a",
    "#8f3bb8",
    "#5794f2",
    "#96b93e",
    "#7a7a7a",
    "#b5651d",
)
_RED, _ORANGE, _GREEN, _GREY = "#c4162a", "#e0752d", "#3f9c35", "#9a9a9a"
_WIDTH_INCHES = 13.0
_LINE_INCHES = 1.6
_TITLE_INCHES = 0.34
_FONT = "'DejaVu Sans', Verdana, Arial, sans-serif"
_MOST_POINTS = 70
_LONGEST_NAME = 26
_LETTER_POINTS = 3.9  # of the legend


@dataclass(frozen=True, slots=True)
class Window:
    """What part of the past is drawn, in seconds since 1970; rates are over `rate_seconds`."""

    start: float
    end: float
    rate_seconds: float

    @property
    def step(self) -> float:
        """Seconds from one point to the next; whole, as scrapes are."""
        return max(round((self.end - self.start) / _MOST_POINTS), 1)


def render(prometheus: LocalPrometheus, window: Window, path: Path, rows: Sequence[Row] = ROWS) -> None:
    """Draw `rows` into `path`, an SVG whose size depends on the rows alone."""
    with mpl.rc_context(
        {
            "font.family": "DejaVu Sans",
            "font.size": 7,
            "svg.fonttype": "none",
            "svg.hashsalt": "recall-service",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.5,
            "axes.grid": True,
            "grid.color": "#e8e8e8",
            "grid.linewidth": 0.5,
        }
    ):
        text = StringIO()
        _draw(prometheus, window, rows).savefig(text, format="svg", metadata={"Date": None})
    path.write_text(_compact(text.getvalue()), encoding="utf-8")


def _compact(svg: str) -> str:
    """The same picture in fewer bytes: coordinates to a tenth of a point, one font for all, no indentation."""
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]).replace("\nL", ""), svg)
    svg = re.sub(r" font-family: [^;\"]*;?| transform=\"rotate\(-0[^\"]*\"", "", svg)
    svg = svg.replace("</style>", f"text{{font-family: {_FONT}}}</style>", 1)
    return re.sub(r"\n\s*", "\n", svg)


def _draw(prometheus: LocalPrometheus, window: Window, rows: Sequence[Row]) -> Figure:
    height = sum(_TITLE_INCHES + _LINE_INCHES * len(lines_of(row)) for row in rows) + 0.1
    figure = Figure(figsize=(_WIDTH_INCHES, height), facecolor="white")
    marks = [mark for expr in VERSION_MARKS for mark in _moments(prometheus, window, expr)]
    top = height
    for row in rows:
        top -= _TITLE_INCHES
        figure.text(0.008, (top + 0.08) / height, row.title, fontsize=10, fontweight="bold")
        for line in lines_of(row):
            top -= _LINE_INCHES
            for panel, x, width in line:
                # Left of the plot is room for its ticks, above for its title, below for its legend.
                place = (
                    x / COLUMNS + 0.04,
                    (top + 0.45) / height,
                    width / COLUMNS - 0.05,
                    (_LINE_INCHES - 0.8) / height,
                )
                axes = figure.add_axes(place)
                figure.text(place[0] - 0.018, place[1] + place[3] + 0.09 / height, panel.title, fontsize=7.5)
                series = _series(prometheus, window, panel)
                if not series:
                    _draw_text(axes, "no data", _GREY)
                    continue
                _DRAW[panel.kind](axes, panel, series, window)
                if panel.kind == "timeseries":
                    for moment in marks:
                        axes.axvline(moment - window.start, color=_COLOURS[2], linewidth=0.8, linestyle=(0, (2, 2)))
    return figure


def _series(prometheus: LocalPrometheus, window: Window, panel: Panel) -> list[tuple[str, Series]]:
    """Every series of the panel's queries with the text of its legend."""
    return [
        (_named(query.legend, series), series)
        for query in panel.queries
        for series in prometheus.query_range(
            fill_in(query.expr, window.rate_seconds), window.start, window.end, window.step
        )
    ]


def _named(legend: str, series: Series) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda label: series.labels.get(label[1], ""), legend)


def _moments(prometheus: LocalPrometheus, window: Window, expr: str) -> list[float]:
    """When each version began to serve, but for those that serve from the beginning."""
    found = prometheus.query_range(expr, window.start, window.end, window.step)
    began = {series.values[0][0] for series in found}
    return sorted(moment for moment in began if moment > window.start + window.step / 2)


def _draw_lines(axes: Axes, panel: Panel, found: list[tuple[str, Series]], window: Window) -> None:
    if len(panel.queries) == 1:  # several are given in an order that says something
        found = _heaviest_first(found)
    times = np.arange(window.start, window.end + window.step / 2, window.step)
    grid = np.full((len(found), len(times)), np.nan)  # [series, times]
    for place, (_, series) in enumerate(found):
        moments, values = np.array(series.values).T
        grid[place, np.rint((moments - window.start) / window.step).astype(int)] = values
    x = times - window.start
    colours = [_COLOURS[place % len(_COLOURS)] for place in range(len(found))]
    if panel.is_stacked:
        axes.stackplot(x, np.nan_to_num(grid), colors=colours, alpha=0.55, linewidth=0)
    else:
        for values, colour in zip(grid, colours, strict=True):
            axes.plot(x, values, color=colour, linewidth=1.1)
    for bound, colour in zip(panel.bounds or (), (_ORANGE, _RED), strict=False):
        axes.axhline(bound, color=colour, linewidth=0.8, linestyle=(0, (4, 2)))
    axes.set_xlim(0, window.end - window.start)
    axes.set_ylim(bottom=0)
    if axes.get_ylim()[1] < 1e-9:
        axes.set_ylim(top=1)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=panel.unit == "none"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, panel.unit)))
    _time_axis(axes)
    _legend(axes, [name for name, _ in found], colours)


def _heaviest_first(found: list[tuple[str, Series]]) -> list[tuple[str, Series]]:
    """Those that hold most first; those of zeros alone only where there are no others."""
    weights = [np.nansum([value for _, value in series.values]) for _, series in found]
    order = sorted(range(len(found)), key=lambda place: -weights[place])
    return [found[place] for place in order if weights[place] > 0 or not any(weights)]


def in_buckets(found: list[tuple[str, Series]], window: Window) -> tuple[list[float], np.ndarray]:
    """Upper edges of a histogram's buckets, and what is in each bucket alone: float64 [buckets, times].

    found: one series for each edge `le`, cumulative as Prometheus stores them.
    """
    times = np.arange(window.start, window.end + window.step / 2, window.step)
    edges = sorted(float(series.labels["le"]) for _, series in found)
    cumulative = np.zeros((len(edges), len(times)))
    for _, series in found:
        moments, values = np.array(series.values).T
        columns = np.rint((moments - window.start) / window.step).astype(int)
        cumulative[edges.index(float(series.labels["le"])), columns] = np.nan_to_num(values)
    return edges, np.diff(cumulative, axis=0, prepend=0)


def _draw_heatmap(axes: Axes, panel: Panel, found: list[tuple[str, Series]], window: Window) -> None:
    """Buckets from low to high; a cell is darker the more was counted in it."""
    edges, counts = in_buckets(found, window)
    axes.imshow(
        np.ma.masked_less_equal(counts, 1e-9),
        origin="lower",
        aspect="auto",
        interpolation="none",
        cmap="YlOrRd",
        extent=(0, window.end - window.start, 0, len(edges)),
    )
    finite = edges[:-1]  # the last bucket has no upper edge
    axes.set_yticks(range(1, len(finite) + 1)[2::4], [shown(edge, panel.unit) for edge in finite[2::4]])
    axes.grid(visible=False)
    _time_axis(axes)


def _draw_stat(axes: Axes, panel: Panel, found: list[tuple[str, Series]], _window: Window) -> None:
    value = found[0][1].values[-1][1]
    _draw_text(axes, shown(value, panel.unit), _colour(value, panel.bounds) if panel.bounds else _GREY)


def _draw_text(axes: Axes, text: str, colour: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.45, text, fontsize=20, color=colour, ha="center", va="center", transform=axes.transAxes)


def _colour(value: float, bounds: tuple[float, float]) -> str:
    orange, red = bounds
    sign = 1 if red > orange else -1
    return _RED if sign * value >= sign * red else _ORANGE if sign * value >= sign * orange else _GREEN


_DRAW = {"timeseries": _draw_lines, "heatmap": _draw_heatmap, "stat": _draw_stat}


def _time_axis(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 1.5, 2, 3, 6, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02}"))
    axes.tick_params(length=2, width=0.5)


def _legend(axes: Axes, names: list[str], colours: list[str]) -> None:
    """The names in a line under the plot, as many as there is room for."""
    room = axes.get_position().width * _WIDTH_INCHES * 72
    x = 0.0
    for name, colour in zip(names, colours, strict=True):
        shown_name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        needed = _LETTER_POINTS * (len(shown_name) + 2)
        if x + needed > room + 12:
            continue
        axes.annotate(f"■ {shown_name}", (x / room, -0.36), xycoords="axes fraction", fontsize=6, color=colour)
        x += needed


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prometheus", required=True, help="URL of the Prometheus to ask")
    parser.add_argument("--minutes", type=float, default=60.0, help="how much of the past is drawn")
    parser.add_argument("--rate-seconds", type=float, default=60.0, help="window of rates: four scrape intervals")
    parser.add_argument("--out", type=Path, required=True, help="SVG to write")
    arguments = parser.parse_args()
    end = time.time()
    window = Window(end - arguments.minutes * 60, end, arguments.rate_seconds)
    render(LocalPrometheus(arguments.prometheus), window, arguments.out)


if __name__ == "__main__":
    main()
