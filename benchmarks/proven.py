"""What it costs to prove an answer, and what skipping rows saves: trained models on real catalogues, or a given bundle.

Every user is asked for by each search in turn, alone in the engine. PROVEN has a budget of three plain beams of the
same width; `proven_share` is the share of users whose whole answer is proven within it. `seconds_ratio_to_beam_400` is
the median over users of PROVEN's seconds over those of a plain beam of 400, which returns all it finds. The figures at
the top of the JSON are Beauty's, or the bundle's. A bundle's users are made up: random items of its catalogue.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.real_models import BEAUTY, INDUSTRIAL, SHARED_DATA, History
from benchmarks.report import commit, hardware, print_json_line
from recall_service.engine.engine import BeamEngine
from recall_service.engine.request import BeamRequest, BeamResult, SearchMode
from recall_service.engine.scheduler import EngineLimits
from recall_service.serving.bundles.bundle import Bundle, load_bundle

WIDE, FEW_ITEMS = 400, 50
BUDGET_IN_BEAMS = 3


class Searches(NamedTuple):
    """The answers of one user."""

    proven: BeamResult
    same_width: BeamResult
    wide: BeamResult
    wide_few_skipping: BeamResult
    wide_few: BeamResult


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table and the JSON; 1 when there is nothing to measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proven", description=__doc__)
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="a bundle; without, the models of ../shared/data")
    parser.add_argument("--users", type=int, default=40, help="how many users of each model")
    parser.add_argument("--num-items", type=int, default=100, help="how many items to prove; also the beam width")
    given = parser.parse_args(arguments)
    if given.bundle is None and not SHARED_DATA.is_dir():
        print(f"{SHARED_DATA}: no such directory; give --bundle DIR", file=sys.stderr)
        return 1
    models = _given_bundle(given) if given.bundle is not None else _real_models(given)
    figures = {name: measure(bundle, histories, given.num_items, name) for name, bundle, histories in models}
    print_table(figures)
    first = next(iter(figures.values()))
    print_json_line({"benchmark": "proven", **first, "models": figures, "hardware": hardware(), "commit": commit()})
    return 0


def measure(bundle: Bundle, histories: Sequence[History], num_items: int, name: str) -> dict[str, Any]:
    """Ask for every user by each search, and sum up."""
    limits = EngineLimits(max_steps=bundle.catalog.layout.num_levels, prefix_cache=False)
    skipping, plain = (BeamEngine(bundle.model, limits, skip_rows=skip_rows) for skip_rows in (True, False))
    prompts = [bundle.history_prompt(history)[0] for history in histories]
    search_user(bundle, skipping, plain, prompts[0], num_items)  # first times cost more
    users = [
        search_user(bundle, skipping, plain, prompt, num_items)
        for prompt in track(prompts, description=name, console=Console(stderr=True))
    ]
    proven, same_width, wide, wide_few_skipping, wide_few = (
        [getattr(user, search) for user in users] for search in Searches._fields
    )
    return {
        "users": len(users),
        "num_items": num_items,
        "proven_share": float(np.mean([result.proven_count == len(result.scores) for result in proven])),
        "rows_mean": _mean(proven, "rows_forwarded"),
        "rows_max": max(result.rows_forwarded for result in proven),
        "rows_beam_same_width": _mean(same_width, "rows_forwarded"),
        "rows_beam_400": _mean(wide, "rows_forwarded"),
        "proven_mean": _mean(proven, "proven_count"),
        "proven_mean_beam_same_width": _mean(same_width, "proven_count"),
        "proven_mean_beam_400": _mean(wide, "proven_count"),
        "seconds_ratio_to_beam_400": float(np.median([_seconds(user.proven) / _seconds(user.wide) for user in users])),
        "rows_beam_400_for_50_items": _mean(wide_few, "rows_forwarded"),
        "rows_beam_400_for_50_items_skipping": _mean(wide_few_skipping, "rows_forwarded"),
        "rows_skipped_share": 1 - _mean(wide_few_skipping, "rows_forwarded") / _mean(wide_few, "rows_forwarded"),
        "seconds_proven": float(np.median(list(map(_seconds, proven)))),
        "seconds_beam_400": float(np.median(list(map(_seconds, wide)))),
        "seconds_beam_400_for_50_items": float(np.median(list(map(_seconds, wide_few)))),
        "seconds_beam_400_for_50_items_skipping": float(np.median(list(map(_seconds, wide_few_skipping)))),
    }


def search_user(
    bundle: Bundle, skipping: BeamEngine, plain: BeamEngine, prompt: NDArray[np.int64], num_items: int
) -> Searches:
    """One user's answers, one search after another."""

    def search(engine: BeamEngine, width: int, **fields: Any) -> BeamResult:
        request = BeamRequest(
            prompt=prompt,
            beam_width=width,
            constraint=bundle.constraint,
            score_space=bundle.file.search.score_space,
            **fields,
        )
        (result,) = engine.search([request])
        return result

    same_width = search(plain, num_items)
    budget = BUDGET_IN_BEAMS * same_width.rows_forwarded
    return Searches(
        proven=search(skipping, num_items, search_mode=SearchMode.PROVEN, row_budget=budget),
        same_width=same_width,
        wide=search(plain, WIDE),
        wide_few_skipping=search(skipping, WIDE, num_results=FEW_ITEMS),
        wide_few=search(plain, WIDE, num_results=FEW_ITEMS),
    )


def print_table(figures: dict[str, dict[str, Any]]) -> None:
    """For people, on stdout."""
    table = Table(title="the true top of the whole catalogue, and rows that never run")
    table.add_column("")
    for name in figures:
        table.add_column(name, justify="right")
    for key in next(iter(figures.values())):
        table.add_row(key.replace("_", " "), *(f"{model[key]:.4g}" for model in figures.values()))
    Console().print(table)


def _real_models(given: argparse.Namespace) -> list[tuple[str, Bundle, list[History]]]:
    loaded = []
    for model in (BEAUTY, INDUSTRIAL):
        with tempfile.TemporaryDirectory() as directory:
            bundle = load_bundle(model.write_bundle(SHARED_DATA, Path(directory)))
        loaded.append((model.name, bundle, model.histories(SHARED_DATA, given.users)))
    return loaded


def _given_bundle(given: argparse.Namespace) -> list[tuple[str, Bundle, list[History]]]:
    bundle = load_bundle(given.bundle)
    print(f"{given.bundle}: no users are known; histories are random items of its catalogue", file=sys.stderr)
    rng = np.random.default_rng(7)
    length = min(bundle.file.prompt.max_history, bundle.catalog.num_items)
    positions = rng.integers(0, bundle.catalog.num_items, (given.users, length))
    return [(bundle.name, bundle, [tuple(bundle.catalog.item_ids.take(row)) for row in positions])]


def _seconds(result: BeamResult) -> float:
    return result.prefill_seconds + result.decode_seconds


def _mean(results: Sequence[BeamResult], count: str) -> float:
    return float(np.mean([getattr(result, count) for result in results]))


if __name__ == "__main__":
    sys.exit(main())
