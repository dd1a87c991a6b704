"""Prefixes that a search has reached but not gone on from: those worth going back to, and what was given up.

Knows scores and depths alone: not what a prefix leads to, nor when a search is over.
"""

import torch
from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.selection import select_top


class Frontier:
    """Rows that may be forwarded later, a group for each depth. The slots they descend from have to be kept until then.

    best_dropped: the best score of any row that was given up, a 0-dim float32; -inf when none was.
    """

    def __init__(self, device: torch.device) -> None:
        self._groups: dict[int, BeamRows] = {}
        self.best_dropped = torch.tensor(-torch.inf, device=device)

    @property
    def best(self) -> Tensor:
        """The best score of any prefix that was not gone on from, held or given up: a 0-dim float32."""
        return torch.cat([self.best_dropped[None], *(rows.score for rows in self._groups.values())]).amax()

    def slots(self) -> list[Tensor]:
        """Slots that the rows descend from: int64 [rows, depth - 1] for each depth."""
        return [rows.slots for rows in self._groups.values()]

    def add(self, rows: BeamRows) -> None:
        """Hold rows of one depth."""
        held = self._groups.get(rows.depth)
        self._groups[rows.depth] = rows if held is None else BeamRows.concatenate([held, rows])

    def take(self, count: int, depth: int | None = None) -> list[BeamRows]:
        """Hand out the `count` best rows, of one depth or of all: a group for each depth, each in tie order."""
        taken = []
        for group_depth, chosen in self._best(count, depth).items():
            rows = self._groups[group_depth]
            self._groups[group_depth] = rows.gather(~chosen)
            taken.append(rows.gather(chosen).in_tie_order())
        return [rows for rows in taken if len(rows)]

    def keep_best(self, count: int) -> None:
        """Give up all but the `count` best rows."""
        for depth, chosen in self._best(count).items():
            self._keep(depth, chosen)

    def drop_below(self, score: Tensor) -> None:
        """Give up all rows that score less."""
        for depth, rows in self._groups.items():
            self._keep(depth, rows.score >= score)

    def _keep(self, depth: int, kept: Tensor) -> None:
        rows = self._groups[depth]
        self.best_dropped = torch.cat([self.best_dropped[None], rows.score[~kept]]).amax()
        self._groups[depth] = rows.gather(kept)

    def _best(self, count: int, depth: int | None = None) -> dict[int, Tensor]:
        """Which rows of each depth, or of one, are among the `count` best of these: bool [rows]."""
        groups = {key: rows for key, rows in self._groups.items() if depth in (None, key)}
        if not groups:
            return {}
        scores = torch.cat([rows.score for rows in groups.values()])
        chosen = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
        if count:
            chosen[select_top(scores, count)[0]] = True
        return dict(zip(groups, chosen.split([len(rows) for rows in groups.values()]), strict=True))
