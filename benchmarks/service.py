"""What the service takes on one machine, its client included: beside an empty gRPC server, and beyond its capacity.

Every server is a process of its own on the loopback interface; the client is this process, the same for all of them. A
table for people, and as the last line one JSON document.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import service_cached, service_overload, service_slow_spell
from benchmarks.report import commit, hardware, print_json_line
from benchmarks.service_load import LoadSettings
from recall_service.heap import settled_heap
from tests.faults.run import run_scenarios


def measure_faults(load: LoadSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """Every scenario of the fault suite in its long form, some twelve minutes."""
    del load  # the scenarios bring their own

    tell("faults")
    found = run_scenarios(full=True, on_report=lambda name, _: tell(f"faults: {name} has ended"))
    return {"faults": found["faults"]}


Part = Callable[[LoadSettings, Callable[[str], None]], dict[str, Any]]

PARTS: dict[str, Part] = {
    "echo": service_cached.measure_echo,
    "cached": service_cached.measure,  # and the echo beside it
    "overload": service_overload.measure,
    "slow_spell": service_slow_spell.measure,
    "demo": service_overload.measure_demo,
    "faults": measure_faults,
}


def parts(text: str) -> list[str]:
    """Names of PARTS by comma, for argparse, in the order of PARTS."""
    given = text.split(",")
    if strangers := sorted(set(given) - set(PARTS)):
        raise argparse.ArgumentTypeError(f"{strangers[0]!r} is none of {', '.join(PARTS)}")
    return [name for name in PARTS if name in given and not (name == "echo" and "cached" in given)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", type=parts, default=parts(",".join(PARTS)), metavar="PART,PART")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round")
    parser.add_argument("--concurrency", type=int, default=16, help="calls under way when there is no pause")
    parser.add_argument("--overload-seconds", type=float, default=30.0, help="of each load beyond capacity")
    given = parser.parse_args(arguments)
    load = LoadSettings(given.rounds, given.seconds, given.concurrency, given.overload_seconds)
    results: dict[str, Any] = {}
    # The client's own collector would stop it for 160 ms now and then, which the server would seem to have taken.
    with settled_heap(), Console(stderr=True).status("") as status:
        for name in given.only:
            results |= PARTS[name](load, lambda doing: status.update(doing))
    Console().print(_table(results))
    print_json_line(
        {"benchmark": "service", "hardware": hardware(), "commit": commit(), "settings": asdict(load), **results}
    )


def _table(results: dict[str, Any]) -> Table:
    table = Table("", title="One machine, its client included", title_justify="left")
    table.add_column("measured", justify="right")
    for name, value in _figures(results):
        table.add_row(name.replace("_", " "), f"{value:,}")
    return table


def _figures(results: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Every figure with the names that lead to it."""
    for name, value in results.items():
        if isinstance(value, dict):
            yield from ((f"{name} {inner}", figure) for inner, figure in _figures(value))
        else:
            yield name, value


if __name__ == "__main__":
    main()
