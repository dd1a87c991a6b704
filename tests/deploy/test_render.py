"""The picture: size by the rows alone, every panel on it, and series where they belong. Prometheus is played here."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.grafana.panels import Panel, Query, Row, plot
from deploy.grafana.render import Window, in_buckets, render
from deploy.grafana.rows import ROWS
from deploy.grafana.units import shown
from deploy.prometheus.local import LocalPrometheus, Series

WINDOW = Window(1_000.0, 1_060.0, 4.0)


class PlayedPrometheus(LocalPrometheus):
    """Answers with the series it was made with, by expression; with nothing where it has none."""

    def __init__(self, series: Mapping[str, list[Series]]) -> None:
        super().__init__("http://nowhere")
        self._series = series
        self.asked: list[str] = []

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        assert (start, end, step) == (1_000.0, 1_060.0, 1)
        self.asked.append(expr)
        return self._series.get(expr, [])


def rising(**labels: str) -> Series:
    return Series(labels, [(1_000.0 + second, float(second)) for second in range(61)])


def flat(value: float, **labels: str) -> Series:
    return Series(labels, [(1_000.0 + second, value) for second in range(61)])


def drawn(tmp_path: Path, rows: tuple[Row, ...], series: Mapping[str, list[Series]]) -> str:
    path = tmp_path / "picture.svg"
    render(PlayedPrometheus(series), WINDOW, path, rows)
    return path.read_text()


def texts(svg: str) -> list[str]:
    return [text.replace("&gt;", ">") for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def size(svg: str) -> str:
    found = re.search(r'width="[\d.]+pt" height="[\d.]+pt"', svg)
    assert found is not None
    return found[0]


def test_the_whole_dashboard_without_any_data(tmp_path: Path) -> None:
    prometheus = PlayedPrometheus({})
    render(prometheus, WINDOW, tmp_path / "picture.svg")
    written = texts((tmp_path / "picture.svg").read_text())
    for row in ROWS:
        assert row.title in written
        assert {panel.title for panel in row.panels} <= set(written)
    assert not [expr for expr in prometheus.asked if "$" in expr]


def test_series_are_named_by_their_labels_and_zeros_are_left_out_beside_others(tmp_path: Path) -> None:
    row = Row("Some", (plot("Lines", "Of two.", "reqps", ("x", "of {{who}}")),))
    svg = drawn(tmp_path, (row,), {"x": [rising(who="one"), flat(0.0, who="two")]})
    assert "■ of one" in texts(svg)
    assert "■ of two" not in texts(svg)
    assert "60/s" in texts(svg)


def test_size_and_bytes_do_not_depend_on_chance(tmp_path: Path) -> None:
    row = Row("Some", (plot("Lines", "Of one.", "s", ("x", "x"), is_stacked=True),))
    one, other = (drawn(tmp_path, (row,), {"x": [rising()]}) for _ in range(2))
    assert one == other
    assert size(one) == size(drawn(tmp_path, (row,), {}))


@pytest.mark.parametrize(
    ("value", "colour"), [(0.5, "#3f9c35"), (0.2, "#e0752d"), (-0.1, "#c4162a")], ids=["fine", "low", "spent"]
)
def test_a_number_has_the_colour_of_its_bounds(tmp_path: Path, value: float, colour: str) -> None:
    budget = Panel(
        title="Left", description=".", unit="percentunit", kind="stat", queries=(Query("x", "x"),), bounds=(0.25, 0.0)
    )
    svg = drawn(tmp_path, (Row("Some", (budget,)),), {"x": [flat(value)]})
    assert re.search(rf"fill: {colour}[^>]*>{shown(value, 'percentunit')}<", svg)


BUCKETS = [flat(4.0, le="+Inf"), flat(3.0, le="2"), flat(1.0, le="1"), flat(3.0, le="4")]


def test_cumulative_buckets_are_taken_apart() -> None:
    edges, counts = in_buckets([("", series) for series in BUCKETS], WINDOW)
    assert edges == [1.0, 2.0, 4.0, math.inf]
    assert counts.shape == (4, 61)
    assert counts[:, 7].tolist() == [1.0, 2.0, 0.0, 1.0]


def test_a_heatmap_is_an_image_with_edges_beside_it(tmp_path: Path) -> None:
    spread = Panel(title="Spread", description=".", unit="s", kind="heatmap", queries=(Query("x", "{{le}}"),))
    svg = drawn(tmp_path, (Row("Some", (spread,)),), {"x": BUCKETS})
    assert "<image" in svg
    assert "4 s" in texts(svg)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0125, "s", "12.5 ms"),
        (0.00005, "s", "50 µs"),
        (36.0, "s", "36 s"),
        (0.975, "percentunit", "97.5 %"),
        (-12.5, "percentunit", "-1,250 %"),
        (3 * 2**20, "bytes", "3 MiB"),
        (1_500.0, "reqps", "1.5k/s"),
        (20_000.0, "short", "20k"),
    ],
)
def test_units(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text  # type: ignore[arg-type]
