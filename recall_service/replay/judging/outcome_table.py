"""The outcomes of one run as columns: what summary and report are made of. Holds no answer and no item."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from recall_service.replay.judging.categories import Category, CategoryBuilder
from recall_service.replay.judging.overlap import first_hit
from recall_service.replay.outcome import Outcome

NOT_KNOWN = -2  # in first_hit: nobody said what the user took next, or there is no answer
NO_HIT = -1  # in first_hit: nothing that the user took next was answered


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutcomeTable:
    """One row for every outcome, in the order they were added.

    intended, sent, done: float64 [rows], seconds from the start of the run.
    scene: empty where the request had none.
    code: of gRPC. failure: code and reason; empty for an answer.
    short_reason, served_from, catalog_version: empty where there is no answer.
    first_hit: int32 [rows], the rank of the first answered item that the user took next, or NO_HIT, or NOT_KNOWN.
    """

    intended: NDArray[np.float64]
    sent: NDArray[np.float64]
    done: NDArray[np.float64]
    scene: Category
    code: Category
    failure: Category
    short_reason: Category
    served_from: Category
    catalog_version: Category
    first_hit: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.done)

    def __getitem__(self, rows: NDArray[np.bool_]) -> Self:
        return type(self)(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @property
    def latency(self) -> NDArray[np.float64]:
        """From the intended sending to the end, float64 [rows], seconds."""
        return self.done - self.intended

    @property
    def is_answered(self) -> NDArray[np.bool_]:
        """Which calls ended in OK."""
        return self.code.equals("OK")

    @property
    def is_waited_for(self) -> NDArray[np.bool_]:
        """Whose latency counts: answers, and calls that waited until their deadline.

        Without the latter a target that lets calls run out of time would look fast; with refusals, which take no
        time, one that refuses would.
        """
        return self.is_answered | self.code.equals("DEADLINE_EXCEEDED")


class OutcomeTableBuilder:
    """An OutcomeTable that grows, by 40 bytes a row. Warm-up and what the replay cancelled are only counted."""

    def __init__(self) -> None:
        self.warm_up = 0
        self.cancelled = 0
        self._intended, self._sent, self._done = array("d"), array("d"), array("d")
        self._scene, self._code, self._failure = CategoryBuilder(), CategoryBuilder(), CategoryBuilder()
        self._short_reason, self._served_from = CategoryBuilder(), CategoryBuilder()
        self._catalog_version = CategoryBuilder()
        self._first_hit = array("i")

    def add(self, outcome: Outcome, next_items: Sequence[str] = ()) -> None:
        """Take in one outcome, of a question after which the user took `next_items`."""
        if outcome.is_warm_up:
            self.warm_up += 1
            return
        if outcome.was_cancelled:
            self.cancelled += 1
            return
        answer = outcome.answer
        self._intended.append(outcome.intended_seconds)
        self._sent.append(outcome.sent_seconds)
        self._done.append(outcome.done_seconds)
        self._scene.append(outcome.scene)
        self._code.append(outcome.code)
        self._failure.append("" if outcome.code == "OK" else f"{outcome.code} {outcome.error_reason}".rstrip())
        self._short_reason.append("" if answer is None else answer.short_reason)
        self._served_from.append("" if answer is None else answer.served_from)
        self._catalog_version.append("" if answer is None else answer.catalog_version)
        self._first_hit.append(NOT_KNOWN if answer is None or not next_items else _hit(answer.item_ids, next_items))

    def build(self) -> OutcomeTable:
        """What was added so far."""
        return OutcomeTable(
            intended=np.array(self._intended, np.float64),
            sent=np.array(self._sent, np.float64),
            done=np.array(self._done, np.float64),
            scene=self._scene.build(),
            code=self._code.build(),
            failure=self._failure.build(),
            short_reason=self._short_reason.build(),
            served_from=self._served_from.build(),
            catalog_version=self._catalog_version.build(),
            first_hit=np.array(self._first_hit, np.int32),
        )


def _hit(items: Sequence[str], wanted: Sequence[str]) -> int:
    rank = first_hit(items, wanted)
    return NO_HIT if rank is None else rank
