"""What the demo tells on the terminal. Measures nothing."""

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from recall_service.app import Serving
from recall_service.client import RecallResult
from recall_service.demo.asking import history_of
from recall_service.demo.narrowing import Narrowing, narrowing_for
from recall_service.demo.shop import Shop
from recall_service.demo.sold_out import SoldOut


def show_answer(console: Console, shop: Shop, answer: RecallResult) -> None:
    """What the first held-out user took, the best of what was recalled, and what was really taken next."""
    titles = dict(zip(shop.assortment.item_ids, shop.assortment.titles, strict=True))
    taken = shop.assortment.item_ids[shop.targets[0]]
    console.print(f"[bold]{shop.held_out.user_ids[0]}[/bold] took, most recent last:")
    for item_id in history_of(shop, 0)[-5:]:
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


def show_users(console: Console, shop: Shop, answers: list[RecallResult]) -> None:
    """The first held-out users: what each really took next, and where the answer had it."""
    titles = shop.assortment.titles
    table = Table(title=f"the first {len(answers)} held-out users", title_justify="left")
    for heading in ("took last", "really took next", "recalled"):
        table.add_column(heading)
    for last, taken, answer in zip(shop.held_out.last_items, shop.targets, answers, strict=False):
        table.add_row(titles[last], titles[taken], _rank_of(shop.assortment.item_ids[taken], answer))
    console.print(table)


def show_figures(console: Console, figures: Mapping[str, Any]) -> None:
    """Recall beside the floors, times, and what is proven."""
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


def show_narrowed(console: Console, shop: Shop, narrowing: Narrowing, figures: Mapping[str, Any]) -> None:
    """The first user's narrower question, and how much of the answer keeps to it."""
    console.print(
        f"[bold]{shop.held_out.user_ids[0]}[/bold] asked for {narrowing.department} at {narrowing.at_most} or less, "
        f"and nothing taken before: {len(narrowing.live)} items are left.\n"
        f"    {figures['filtered_valid']} of {figures['filtered_items']} items answered are of these, "
        f"{figures['filtered_proven']} proven to be their true top, in {figures['filtered_ms']} ms\n"
        f"    with the new filter worked out; equal to brute force: {figures['filtered_equals_brute_force']}"
    )


def show_sold_out(console: Console, shop: Shop, before: RecallResult, sold_out: SoldOut) -> None:
    """The item that went and came back, and the versions of the catalogue meanwhile."""
    title = shop.assortment.titles[shop.assortment.item_ids.index(sold_out.item_id)]
    answers = (before, sold_out.meanwhile, sold_out.afterwards)
    versions = " -> ".join(answer.catalog_version[:8] for answer in answers)
    ranks = ", then ".join(_rank_of(sold_out.item_id, answer) for answer in answers)
    console.print(
        f"[bold]sold out[/bold]: {title}; durable and live in {sold_out.live_seconds * 1000:.1f} ms; then put back.\n"
        f"    recalled {ranks}; catalogue {versions}\n"
    )


def how_to_ask(serving: Serving, shop: Shop) -> str:
    """Commands that ask a served demo, and change its catalogue: for a user to paste, from the project's root."""
    narrowing = narrowing_for(shop, 0)
    history = ",".join(history_of(shop, 0))
    query = f"  .venv/bin/recall-service query --target {serving.address} --num-items 10 --history {history}"
    narrower = f"--where 'department={narrowing.department}' --where 'price<={narrowing.at_most}' --exclude-history"
    removal = json.dumps({"item_id": shop.assortment.item_ids[shop.targets[0]], "remove": True})
    return (
        f"serving on {serving.address}, metrics on {serving.metrics_url}; stop with Ctrl-C. Ask it with\n\n"
        f"{query}\n\n"
        "and for a part of the catalogue, without what was taken before, with\n\n"
        f"{query} {narrower}\n\n"
        "Let an item be sold out while it serves (`make demo` puts it back) with\n\n"
        f"  echo '{removal}' | .venv/bin/recall-service admin --target {serving.admin_address} apply /dev/stdin\n"
    )


def _rank_of(item_id: str, answer: RecallResult) -> str:
    ranks = [rank for rank, item in enumerate(answer.items, start=1) if item.item_id == item_id]
    return f"at rank {ranks[0]}" if ranks else f"not among {len(answer.items)}"
