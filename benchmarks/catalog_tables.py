"""What benchmarks.catalog found, for people."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_sizes(sizes: Sequence[dict[str, Any]]) -> None:
    """Built, opened and searched, a line for each size."""
    table = _table("a catalogue built, opened and searched")
    for heading in ("items", "sort", "build", "ratio", "peak", "trie", "open", "verify", "select"):
        table.add_column(heading, justify="right", no_wrap=True)
    for size in sizes:
        table.add_row(
            _items(size),
            f"{size['sort_seconds']:.2f} s",
            f"{size['build_seconds']:.2f} s",
            f"{size['build_ratio']:.1f}x",
            f"{size['peak_bytes'] / 1e9:.1f} GB",
            f"{size['trie_bytes_per_item']:.1f} B",
            f"{1000 * size['open_seconds']:.1f} ms",
            f"{size['verify_seconds']:.1f} s",
            f"{1000 * size['selection_seconds']:.1f} ms" if "selection_seconds" in size else "",
        )
    Console().print(table)


def print_exclusions(sizes: Sequence[dict[str, Any]]) -> None:
    """A line for each size and number of exclusions."""
    table = _table("items excluded from one search")
    for heading in ("items", "excluded", "whole", "first", "find", "dead set", "constraint"):
        table.add_column(heading, justify="right", no_wrap=True)
    for size in sizes:
        for found in size["exclusions"]:
            parts = ("seconds", "first_seconds", "find_seconds", "dead_set_seconds", "without_seconds")
            table.add_row(_items(size), f"{found['excluded']:,}", *(f"{1000 * found[part]:.2f} ms" for part in parts))
    Console().print(table)


def print_cached_filters(cells: Sequence[dict[str, Any]]) -> None:
    """A line for each width and filter. The one that keeps 100 % is none: what chance makes of it."""
    table = _table("searches with a cached filter beside searches without")
    for heading in ("width", "kept", "without", "with", "cost", "of decode", "by selection"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cell in cells:
        table.add_row(
            str(cell["width"]),
            f"{cell['kept']:.0%}",
            f"{cell['plain_seconds']:.3f} s",
            f"{cell['seconds']:.3f} s",
            *(f"{100 * cell[cost]:+.2f} %" for cost in ("cost", "decode_cost", "selection_cost")),
        )
    Console().print(table)


def print_figures(title: str, figures: dict[str, Any]) -> None:
    """Every figure by its name, but for those that are lists."""
    table = _table(title)
    table.add_column("")
    table.add_column("measured", justify="right")
    for name, figure in figures.items():
        if not isinstance(figure, list):
            table.add_row(name.replace("_", " "), f"{figure:,.4g}" if isinstance(figure, float) else f"{figure:,}")
    Console().print(table)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left")


def _items(size: dict[str, Any]) -> str:
    return f"{size['items'] / 1e6:g}M"
