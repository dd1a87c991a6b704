"""The GPU benchmark's tables for people, in plain text. Times in milliseconds."""

from collections.abc import Sequence
from typing import Any

_CELL = ("context", "W", "batch")


def print_cells(results: Sequence[dict[str, Any]]) -> None:
    """Every cell: whole searches, steps by the device's clock, and what they reach."""
    rows = []
    for result in results:
        prefill, *decodes = result["steps"]
        cost = result["constraint_cost_percent"]
        rows.append(
            (
                *(str(result[name]) for name in ("context", "width", "batch")),
                result["mode"],
                f"{result['milliseconds']:.2f}",
                f"{prefill['device_milliseconds']:.2f}",
                " ".join(f"{step['device_milliseconds']:.2f}" for step in decodes),
                " ".join(f"{each:.2f}" for each in result["selection_milliseconds"]),
                f"{'' if result['host_was_ahead'] else '>'}{100 * result['host_gap_share']:.1f}%",
                "" if cost is None else f"{cost:.1f}%",
                f"{prefill['tflops']:.0f} ({100 * prefill['share_of_product']:.0f}%)",
                " ".join(
                    f"{step['gigabytes_per_second']:.0f} ({100 * step['share_of_copy']:.0f}%)" for step in decodes
                ),
            )
        )
    headings = (*_CELL, "mode", "whole", "prefill", "decode", "selection", "host gap", "constraint")
    print("searches: ms, steps by the device's clock; of a product's TFLOP/s, of a copy's GB/s")
    print_table((*headings, "prefill TFLOP/s", "decode GB/s"), rows)


def print_peers(peers: Sequence[dict[str, Any]]) -> None:
    """Theirs, ours and the ratio."""
    rows = [
        (
            *(str(peer[name]) for name in ("context", "width", "batch")),
            peer["peer"],
            *(f"{peer[name]:.2f}" for name in ("milliseconds", "ours_milliseconds", "ratio")),
            f"{peer['score_difference']:.3f}",
        )
        for peer in peers
    ]
    print("other engines on the same weights and prompts, free, ms")
    print_table((*_CELL, "engine", "theirs", "ours", "ratio", "scores apart"), rows)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell, right-aligned."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print()
