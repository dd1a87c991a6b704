"""The right answers, computed beforehand: in this process, one question at a time, past every cache."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.faults.questions import Question, ordinary_questions
from tests.serving.served import Served

SCORE_TOLERANCE = 1e-5
_CLEAR_GAP = 1e-4


class Right(NamedTuple):
    """What an answer must say."""

    item_ids: tuple[str, ...]
    scores: NDArray[np.float64]
    unknown_history_items: int


class Oracle:
    """Right answers by catalogue version and question. `questions` are those that any server may be asked.

    Which requests share a step moves scores by some 1e-6, and may swap neighbours that are closer than that. So only
    questions are taken whose neighbours lie apart; then items and their order must be right, whatever runs beside them.
    """

    def __init__(self, rights: dict[tuple[str, Question], Right], questions: Sequence[Question]) -> None:
        self.rights = rights
        self.questions = questions

    def problem(self, question: Question, answer: Any) -> str:
        """What is wrong with an answer, a message or a client's result; empty when it is right."""
        right = self.rights.get((answer.catalog_version, question))
        if right is None:
            return f"it names catalogue {answer.catalog_version!r}, which nobody serves"
        if (item_ids := tuple(item.item_id for item in answer.items)) != right.item_ids:
            return f"items {item_ids}, right are {right.item_ids}"
        if (off := np.abs([item.score for item in answer.items] - right.scores).max(initial=0)) > SCORE_TOLERANCE:
            return f"a score is {off:.3g} off"
        if answer.unknown_history_items != right.unknown_history_items:
            return f"{answer.unknown_history_items} unknown items, right are {right.unknown_history_items}"
        return ""


def compute_oracle(bundles: Sequence[Path], num_ordinary: int, special: Sequence[Question]) -> Oracle:
    """Answers of so many ordinary questions, and of the special ones, by each of the bundles."""
    return asyncio.run(_compute(bundles, num_ordinary, special))


async def _compute(bundles: Sequence[Path], num_ordinary: int, special: Sequence[Question]) -> Oracle:
    questions = [*special, *islice(ordinary_questions(seed=1), 2 * num_ordinary)]
    rights: dict[tuple[str, Question], Right] = {}
    unclear: set[Question] = set()
    for bundle in bundles:
        served = Served(bundle)
        for question in questions:
            answer = await served.pipeline.recall(question.query(), "feed")
            rights[answer.catalog_version, question] = Right(
                answer.item_ids, answer.scores, answer.unknown_history_items
            )
            gaps = -np.diff(answer.scores)
            if ((gaps > 0) & (gaps < _CLEAR_GAP)).any():  # items of one SID have one score, and an order of their own
                unclear.add(question)
        served.registry.close()
    assert not unclear & set(special), "a special question has neighbours that are too close; give it another prompt"
    clear = [question for question in questions if question not in unclear]
    return Oracle(rights, clear[len(special) :][:num_ordinary])
