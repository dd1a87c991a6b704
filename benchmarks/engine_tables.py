"""The engine benchmark's tables for people, on stdout. Times in milliseconds."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

MIB = 1024 * 1024
WIDTH_IN_PIPE = 150


def print_cells(results: Sequence[dict[str, Any]]) -> None:
    """Every cell: stages, floor, memory."""
    headings = ("prompt", "W", "mode", "total", "prefill", "decode", "selection", "floor", "floor ratio")
    table = _table("searches and their floor, ms and MiB", *headings, "over free", "peak", "budget", "excess")
    for result in results:
        table.add_row(
            str(result["prompt"]),
            str(result["width"]),
            result["mode"],
            *(_ms(result[f"{stage}seconds"]) for stage in ("", "prefill_", "decode_", "selection_", "floor_")),
            f"{result['floor_ratio']:.2f}",
            "" if result["over_free"] is None else f"{result['over_free']:.3f}",
            "" if result["peak_bytes"] is None else f"{result['peak_bytes'] / MIB:.0f}",
            f"{result['budget_bytes'] / MIB:.0f}",
            "" if result["excess_percent"] is None else f"{result['excess_percent']:.0f}%",
        )
    wide_console().print(table)


def print_products(products: Sequence[dict[str, Any]]) -> None:
    """What each matrix product of the floors costs per layer, by every way."""
    table = _table("matrix products of the floors, ms a layer", "prompt", "stage", "matrix", "rows", "layers", "ways")
    for entry in products:
        ways = sorted(entry["layer_seconds_by_way"].items(), key=lambda way: way[1])
        table.add_row(
            *(str(entry[name]) for name in ("prompt", "stage", "matrix", "rows", "layers")),
            "  ".join(f"{way} {seconds * 1000:.2f}" for way, seconds in ways),
        )
    wide_console().print(table)


def print_switches(switches: Sequence[dict[str, Any]]) -> None:
    """Each optimisation on and off."""
    table = _table("switches, ms", "switch", "prompt", "W", "mode", "on", "off", "off over on")
    for entry in switches:
        table.add_row(
            *(str(entry[name]) for name in ("switch", "prompt", "width", "mode")),
            _ms(entry["on_seconds"]),
            _ms(entry["off_seconds"]),
            f"{entry['off_seconds'] / entry['on_seconds']:.2f}",
        )
    if switches:
        wide_console().print(table)


def print_short(results: Sequence[dict[str, Any]]) -> None:
    """Queries per second by width."""
    table = _table("short prompts, 10 new tokens", "W", "queries", "queries per second")
    for result in results:
        table.add_row(str(result["width"]), str(result["queries"]), f"{result['queries_per_second']:.2f}")
    wide_console().print(table)


def wide_console() -> Console:
    """As wide as the terminal; in a pipe, as wide as the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_IN_PIPE)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if seconds >= 0.1 else f"{1000 * seconds:.1f}"
