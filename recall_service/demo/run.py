"""The demo a newcomer sees: the real server on a model trained a minute ago, asked over gRPC, measured and proven."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from recall_service.app import Serving, serve
from recall_service.client import RecallClient, RecallResult
from recall_service.config import load_settings
from recall_service.demo.asking import ask, ask_many
from recall_service.demo.figures import check_figures, narrowing_figures, recall_figures, update_figures
from recall_service.demo.narration import (
    how_to_ask,
    show_answer,
    show_figures,
    show_narrowed,
    show_sold_out,
    show_users,
)
from recall_service.demo.narrowing import Narrowing, narrowing_for
from recall_service.demo.prepare import DemoSettings, PreparedDemo, prepare_demo, restock
from recall_service.demo.proof import equals_brute_force, score_everything
from recall_service.demo.shop import Shop
from recall_service.demo.sold_out import SoldOut, sell_out
from recall_service.errors import SetupError

_USERS_MEASURED = 500
_USERS_PROVEN = 3
_USERS_ALONE = 8  # asked one at a time: what a search takes by itself
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    """What the server said.

    first, again: to the first user, the first time and then from the cache. alone: to the first users, one at a time.
    many: to each held-out user. narrowed: to the first user's narrower question. sold_out: to the first user, when the
    best item of `first` was gone.
    """

    first: RecallResult
    again: list[RecallResult]
    alone: list[RecallResult]
    many: list[RecallResult]
    narrowed: RecallResult
    sold_out: SoldOut


def run_demo(directory: Path, settings: DemoSettings | None = None) -> dict[str, Any]:
    """Prepare, serve, ask, change the catalogue, measure, prove; narrate on stdout and return the figures.

    Raises SetupError when the server does not start, or an answer is not what brute force and the shop say.
    """
    console = Console(width=110)
    demo = prepare_demo(directory, settings)
    restock(demo)
    narrowing = narrowing_for(demo.shop, user=0)
    console.print(f"bundle: {demo.bundle_directory} ({'kept from an earlier run' if demo.reused else 'made just now'})")
    with _server(demo.bundle_directory, directory / "server.log") as serving:
        console.print(f"server: {serving.address}, metrics on {serving.metrics_url}\n")
        answers = _ask_everything(console, serving, demo.shop, narrowing)
    figures = {
        **recall_figures(demo.shop, answers.first, answers.again, answers.alone, answers.many),
        **narrowing_figures(demo.shop, narrowing, answers.narrowed),
        **update_figures(answers.first, answers.sold_out),
        **_proofs(demo, narrowing, answers),
    }
    show_users(console, demo.shop, answers.alone)
    show_figures(console, figures)
    show_narrowed(console, demo.shop, narrowing, figures)
    show_sold_out(console, demo.shop, answers.first, answers.sold_out)
    check_figures(figures)
    return figures


def stay_up(directory: Path) -> None:
    """Serve the demo's bundle until interrupted, and print how to call it."""
    demo = prepare_demo(directory)

    def tell(serving: Serving) -> None:
        Console().print(how_to_ask(serving, demo.shop), soft_wrap=True, highlight=False, markup=False)

    asyncio.run(serve(load_settings(flags={"bundles": [demo.bundle_directory]}), tell))


def _ask_everything(console: Console, serving: Serving, shop: Shop, narrowing: Narrowing) -> _Answers:
    with RecallClient(serving.address, timeout=30.0) as client:
        first = ask(client, shop, user=0, cache="refresh")
        again = [ask(client, shop, user=0) for _ in range(5)]
        alone = [ask(client, shop, user, cache="bypass") for user in range(_at_most(_USERS_ALONE, shop))]
        show_answer(console, shop, first)
        many = asyncio.run(ask_many(serving.address, shop, _at_most(_USERS_MEASURED, shop)))
        narrowed = ask(client, shop, user=0, where=narrowing.where, exclude_history=True)
        best = first.items[0].item_id
        sold_out = sell_out(serving.admin_address, shop.assortment, best, lambda: ask(client, shop, user=0))
    return _Answers(first, again, alone, many, narrowed, sold_out)


def _proofs(demo: PreparedDemo, narrowing: Narrowing, answers: _Answers) -> dict[str, Any]:
    assortment = demo.shop.assortment
    everything = np.arange(len(assortment.item_ids))
    without_best = np.delete(everything, assortment.item_ids.index(answers.sold_out.item_id))
    truths = [score_everything(demo, user) for user in range(_at_most(_USERS_PROVEN, demo.shop))]
    equal = [
        equals_brute_force(truth, assortment, everything, answer)
        for truth, answer in zip(truths, answers.alone, strict=False)
    ]
    return {
        "equals_brute_force": all(equal),
        "filtered_equals_brute_force": equals_brute_force(truths[0], assortment, narrowing.live, answers.narrowed),
        "update_equals_brute_force": equals_brute_force(
            truths[0], assortment, without_best, answers.sold_out.meanwhile
        ),
    }


def _at_most(number: int, shop: Shop) -> int:
    """So many held-out users, or as many as there are."""
    return min(number, shop.held_out.num_users)


@contextmanager
def _server(bundle_directory: Path, log_path: Path) -> Iterator[Serving]:
    """The real server as a process of its own, on free ports; its first line of stdout says where it is."""
    arguments = ["serve", "--bundle", str(bundle_directory), "--port", "0", "--metrics-port", "0", "--admin-port", "0"]
    with log_path.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "recall_service", *arguments], stdout=subprocess.PIPE, stderr=log
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SetupError(f"demo: the server did not start; see {log_path}")
        yield Serving(**json.loads(line))
    finally:
        process.terminate()
        process.communicate(timeout=_START_SECONDS)
