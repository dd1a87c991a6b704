"""The fault suite, in its long form or the short one of the tests: `python -m tests.faults [--full] [--only names]`.

Progress goes to stderr, a table to stdout, and its last line is one JSON document. Exit code 1 when a fault showed.
"""

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table

from benchmarks.report import print_json_line
from tests.faults.report import FaultReport
from tests.faults.run import SCENARIOS, run_scenarios, scenarios_named


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the long form, about a quarter of an hour")
    parser.add_argument("--only", default="", help=f"scenarios by comma: {', '.join(s.__name__ for s in SCENARIOS)}")
    arguments = parser.parse_args()
    only = list(filter(None, arguments.only.split(",")))
    try:
        scenarios_named(only)
    except ValueError as error:
        parser.error(str(error))
    table = Table("scenario", "cases", "wrong", "leaked", "hung", "seconds", "notes")
    progress = Console(stderr=True)
    last = time.monotonic()

    def show(name: str, report: FaultReport) -> None:
        nonlocal last
        counts = map(str, (report.cases, report.wrong, report.leaked, report.hung))
        table.add_row(name, *counts, f"{time.monotonic() - last:.1f}", "\n".join(report.notes))
        progress.print(f"{name}: {'clean' if report.is_clean else 'NOT CLEAN'}, {report.cases} cases")
        last = time.monotonic()

    with progress.status("asking real servers, and breaking them"):
        document = run_scenarios(arguments.full, only, show)
    Console().print(table)
    print_json_line(document)
    faults = document["faults"]
    sys.exit(1 if faults["wrong"] or faults["leaked"] or faults["hung"] else 0)


if __name__ == "__main__":
    main()
