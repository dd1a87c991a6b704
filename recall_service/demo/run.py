"""The demo a newcomer sees: the real server on a model trained a minute ago, asked over gRPC, measured and proven."""

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from recall_service.app import Serving, serve
from recall_service.client import AsyncRecallClient, RecallClient, RecallResult
from recall_service.config import load_settings
from recall_service.demo.floors import markov_floor, popularity_floor, recall_at
from recall_service.demo.prepare import DemoSettings, prepare_demo
from recall_service.demo.proof import equals_brute_force
from recall_service.demo.shop import Shop
from recall_service.errors import SetupError

BEAM_WIDTH = 200
NUM_ITEMS = 100
_USERS_MEASURED = 500
_USERS_PROVEN = 3
_USERS_ALONE = 8  # asked one at a time: what a search takes by itself
_CALLS_AT_ONCE = 4
_START_SECONDS = 120.0


def run_demo(directory: Path, settings: DemoSettings | None = None) -> dict[str, Any]:
    """Prepare, serve, ask, measure, prove; narrate on stdout and return the figures.

    Raises SetupError when the server does not start, or an answer is not what brute force says.
    """
    console = Console(width=110)
    demo = prepare_demo(directory, settings)
    console.print(f"bundle: {demo.bundle_directory} ({'kept from an earlier run' if demo.reused else 'made just now'})")
    with _server(demo.bundle_directory, directory / "server.log") as serving:
        console.print(f"server: {serving['address']}, metrics on {serving['metrics_url']}\n")
        with RecallClient(serving["address"], timeout=30.0) as client:
            first = _ask(client, demo.shop, user=0, cache="refresh")
            again = [_ask(client, demo.shop, user=0) for _ in range(5)]
            num_alone = min(_USERS_ALONE, demo.shop.held_out.num_users)
            alone = [_ask(client, demo.shop, user, cache="bypass") for user in range(num_alone)]
        proofs = [equals_brute_force(demo, user, answer) for user, answer in enumerate(alone[:_USERS_PROVEN])]
        _show_answer(console, demo.shop, first)
        num_users = min(_USERS_MEASURED, demo.shop.held_out.num_users)
        answers = asyncio.run(_ask_many(serving["address"], demo.shop, num_users))
    _show_users(console, demo.shop, alone)
    figures = _figures(demo.shop, first, again, alone, answers) | {"equals_brute_force": all(proofs)}
    _show_figures(console, figures)
    if not (figures["equals_brute_force"] and figures["all_answers_valid"]):
        raise SetupError(f"demo: an answer is not what brute force says; please report this: {json.dumps(figures)}")
    return figures


def stay_up(directory: Path) -> None:
    """Serve the demo's bundle until interrupted, and print how to call it."""
    demo = prepare_demo(directory)
    history = ",".join(_item_ids(demo.shop, demo.shop.held_out.of_user(0)))

    def tell(serving: Serving) -> None:
        Console(width=200).print(
            f"serving on {serving.address}, metrics on {serving.metrics_url}; stop with Ctrl-C. Ask it with\n\n"
            f"  .venv/bin/recall-service query --target {serving.address} --num-items 10 --history {history}\n",
            soft_wrap=True,
        )

    asyncio.run(serve(load_settings(flags={"bundles": [demo.bundle_directory]}), tell))


@contextmanager
def _server(bundle_directory: Path, log_path: Path) -> Iterator[dict[str, Any]]:
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
        yield json.loads(line)
    finally:
        process.terminate()
        process.communicate(timeout=_START_SECONDS)


def _ask(client: RecallClient, shop: Shop, user: int, cache: Any = "use") -> RecallResult:
    history = _item_ids(shop, shop.held_out.of_user(user))
    return client.recall(history=history, num_items=NUM_ITEMS, beam_width=BEAM_WIDTH, scene="feed", cache=cache)


async def _ask_many(address: str, shop: Shop, num_users: int) -> list[RecallResult]:
    """Every user once, a few at a time, past the cache."""
    gate = asyncio.Semaphore(_CALLS_AT_ONCE)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"recalling for {num_users} held-out users", total=num_users)
        async with AsyncRecallClient(address, timeout=60.0) as client:

            async def ask(user: int) -> RecallResult:
                history = _item_ids(shop, shop.held_out.of_user(user))
                async with gate:
                    answer = await client.recall(
                        history=history, num_items=NUM_ITEMS, beam_width=BEAM_WIDTH, cache="bypass"
                    )
                bar.advance(task)
                return answer

            return await asyncio.gather(*(ask(user) for user in range(num_users)))


def _figures(
    shop: Shop,
    first: RecallResult,
    again: list[RecallResult],
    alone: list[RecallResult],
    answers: list[RecallResult],
) -> dict[str, Any]:
    items_on = shop.assortment.items_by_sid()
    on_sid = [[item.item_id in items_on.get(item.sid, ()) for item in answer.items] for answer in [first, *answers]]
    unique = [len({item.item_id for item in answer.items}) for answer in [first, *answers]]
    num_items, last = len(shop.assortment.item_ids), shop.held_out.last_items[: len(answers)]
    targets = shop.targets[: len(answers)].tolist()
    recalled = [[item.item_id for item in answer.items] for answer in answers]
    popular = popularity_floor(shop.train, num_items, len(answers), NUM_ITEMS)
    markov = markov_floor(shop.train, num_items, last, NUM_ITEMS)
    return {
        "items": len(first.items),
        "valid": sum(on_sid[0]),
        "unique": unique[0],
        "all_answers_valid": all(all(row) for row in on_sid) and all(n == NUM_ITEMS for n in unique),
        "proven_count": first.proven_count,
        "engine_ms": round(statistics.median((a.prefill_seconds + a.decode_seconds) * 1000 for a in alone), 2),
        "cached_ms": round(statistics.median(a.total_seconds * 1000 for a in again), 3),
        "cached_from": again[0].served_from,
        "recall_at_100": round(recall_at(recalled, _item_ids(shop, shop.targets[: len(answers)]), NUM_ITEMS), 4),
        "popularity_at_100": round(recall_at(popular.tolist(), targets, NUM_ITEMS), 4),
        "markov_at_100": round(recall_at(markov.tolist(), targets, NUM_ITEMS), 4),
        "users": len(answers),
        "catalog_items": num_items,
        "beam_width": BEAM_WIDTH,
    }


def _show_answer(console: Console, shop: Shop, answer: RecallResult) -> None:
    titles = dict(zip(shop.assortment.item_ids, shop.assortment.titles, strict=True))
    taken = shop.assortment.item_ids[shop.targets[0]]
    console.print(f"[bold]{shop.held_out.user_ids[0]}[/bold] took, most recent last:")
    for item_id in _item_ids(shop, shop.held_out.of_user(0)[-5:]):
        console.print(f"    {titles[item_id]}")
    table = Table(title=f"recalled at W = {answer.beam_width}", title_justify="left")
    for heading, justify in (
        ("rank", "right"),
        ("item", "left"),
        ("title", "left"),
        ("score", "right"),
        ("SID", "right"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for rank, item in enumerate(answer.items, start=1):
        is_taken = item.item_id == taken
        if rank <= 10 or is_taken:
            style = "bold green" if is_taken else ""
            sid = " ".join(map(str, item.sid))
            table.add_row(str(rank), item.item_id, titles[item.item_id], f"{item.score:.3f}", sid, style=style)
    console.print(table)
    console.print(f"really took next: [bold green]{titles[taken]}[/bold green], {_rank_of(taken, answer)}\n")


def _show_users(console: Console, shop: Shop, answers: list[RecallResult]) -> None:
    """The first held-out users: what each really took next, and where the answer had it."""
    titles = shop.assortment.titles
    table = Table(title=f"the first {len(answers)} held-out users", title_justify="left")
    for heading in ("took last", "really took next", "recalled"):
        table.add_column(heading)
    for last, taken, answer in zip(shop.held_out.last_items, shop.targets, answers, strict=False):
        table.add_row(titles[last], titles[taken], _rank_of(shop.assortment.item_ids[taken], answer))
    console.print(table)


def _rank_of(item_id: str, answer: RecallResult) -> str:
    ranks = [rank for rank, item in enumerate(answer.items, start=1) if item.item_id == item_id]
    return f"at rank {ranks[0]}" if ranks else f"not among {len(answer.items)}"


def _show_figures(console: Console, figures: dict[str, Any]) -> None:
    table = Table(title=f"{figures['users']} held-out users", title_justify="left")
    for heading in ("", "Recall@100"):
        table.add_column(heading, justify="right")
    for name, key in (("this model", "recall"), ("Markov floor", "markov"), ("popularity floor", "popularity")):
        table.add_row(name, f"{figures[f'{key}_at_100']:.3f}")
    console.print(table)
    console.print(
        f"engine {figures['engine_ms']} ms a search, {figures['cached_ms']} ms from the cache when asked again; "
        f"{figures['proven_count']} of {figures['items']} items proven to be the model's true top; "
        f"equal to brute force: {figures['equals_brute_force']}\n"
    )


def _item_ids(shop: Shop, rows: NDArray[np.integer]) -> list[str]:
    return [shop.assortment.item_ids[row] for row in rows]
