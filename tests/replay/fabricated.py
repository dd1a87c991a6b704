"""Questions, answers and outcomes as a replay would have them, made up from a seed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from recall_service.replay.asked import Answered, Asked
from recall_service.replay.outcome import Outcome
from recall_service.stubs.recall.v1 import recall_pb2

SCENES = ("feed", "search", "mail")


def answered(
    items: Sequence[str],
    scores: Sequence[float] | None = None,
    *,
    short_reason: str = "",
    catalog_version: str = "c1",
    served_from: str = "ENGINE",
) -> Answered:
    """An answer of these items; their scores -1, -2, ... unless given."""
    return Answered(
        item_ids=tuple(items),
        scores=tuple(-1.0 - rank for rank in range(len(items))) if scores is None else tuple(scores),
        proven_count=0,
        short_reason=short_reason,
        served_from=served_from,
        bundle_version="b1",
        catalog_version=catalog_version,
    )


def outcome(
    index: int = 0,
    *,
    intended: float = 0.0,
    lag: float = 0.0,
    service: float = 0.01,
    code: str = "OK",
    answer: Answered | None = None,
    **others: object,
) -> Outcome:
    """What came of one question; an answer of two items unless it failed or another is given."""
    return Outcome(
        index=index,
        intended_seconds=intended,
        sent_seconds=intended + lag,
        done_seconds=intended + lag + service,
        code=code,
        answer=(answer or answered(("a", "b"))) if code == "OK" else None,
        **({"scene": "feed"} | others),  # type: ignore[arg-type]
    )


def asked(index: int, *, expected: Answered | None = None, next_items: Sequence[str] = ()) -> Asked:
    return Asked(
        index=index,
        request=recall_pb2.RecallRequest(history=recall_pb2.ItemHistory(item_ids=["x"])),
        arrival_seconds=float(index),
        expected=expected,
        next_items=tuple(next_items),
    )


def logged_run(count: int, *, items: int = 20, seed: int = 0) -> tuple[list[Asked], list[Outcome]]:
    """A log of answers, and a run of 100 requests a second that answered all of it the same way, in shuffled order."""
    random = np.random.default_rng(seed)
    questions, outcomes = [], []
    for index in range(count):
        ids = [f"item{number:04d}" for number in random.choice(400, items, replace=False)]
        answer = answered(ids, np.sort(random.normal(-6, 2, items))[::-1].tolist())
        questions.append(asked(index, expected=answer, next_items=[f"item{random.integers(400):04d}"]))
        outcomes.append(
            outcome(
                index,
                intended=index / 100,
                lag=float(random.exponential(2e-4)),
                service=float(random.lognormal(-4.5, 0.5)),
                answer=answer,
                scene=SCENES[index % 3],
            )
        )
    return questions, [outcomes[place] for place in random.permutation(count)]


def without_item(given: Outcome, item: str, catalog_version: str = "c2") -> Outcome:
    """The same outcome of a catalogue that lacks an item: the ones behind move up, and a new one comes last."""
    answer = given.answer
    assert answer is not None
    kept = [(name, score) for name, score in zip(answer.item_ids, answer.scores, strict=True) if name != item]
    if len(kept) < len(answer.item_ids):
        kept.append((f"new{given.index}", answer.scores[-1] - 0.1))
    names, scores = zip(*kept, strict=True)
    changed = replace(answer, item_ids=names, scores=scores, catalog_version=catalog_version)
    return replace(given, answer=changed)


def drifted(given: Outcome, by: float) -> Outcome:
    """The same outcome with every score lower by so much."""
    answer = given.answer
    assert answer is not None
    return replace(given, answer=replace(answer, scores=tuple(score - by for score in answer.scores)))


def write(path: Path, outcomes: Sequence[Outcome]) -> Path:
    path.write_text("".join(f"{one.to_json()}\n" for one in outcomes), encoding="utf-8")
    return path
