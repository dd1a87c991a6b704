"""What a panel is, as data: its queries and how they are shown. Knows no JSON, and no metric."""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["none", "short", "percentunit", "s", "bytes", "reqps", "ops", "cps"]  # by Grafana's names


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression. legend: Grafana's template of a series' name, with {{label}}."""

    expr: str
    legend: str
    has_exemplars: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Queries of one unit. bounds: it is orange past the first, red past the second.

    Bounds that fall, as (0.25, 0.0), are floors; bounds that rise are ceilings.
    """

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Literal["timeseries", "stat", "heatmap"] = "timeseries"
    is_stacked: bool = False
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a title, in the order in which they are read."""

    title: str
    panels: tuple[Panel, ...]


def plot(title: str, description: str, unit: Unit, *queries: tuple[str, str], is_stacked: bool = False) -> Panel:
    """A plot over time of queries given as (expr, legend)."""
    lines = tuple(Query(expr, legend) for expr, legend in queries)
    return Panel(title=title, description=description, unit=unit, queries=lines, is_stacked=is_stacked)
