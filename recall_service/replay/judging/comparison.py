"""What a comparison of two targets' answers, question by question, came to. Data only: `comparing` fills it."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recall_service.replay.judging.summary import CUTOFFS


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupComparison:
    """How the candidate's answers to some questions differ from the reference's.

    pairs: questions that both answered. identical: of these, where both gave the same items in the same order.
    only_reference, only_candidate, neither: questions that one of them, or none, answered.
    overlap: mean overlap@k of the pairs for k = 1, 2, ...; beyond its end it stays as it is.
    rank_correlation, least_rank_correlation: mean and least of Kendall's tau over the pairs that share two items.
    max_score_drift, mean_score_drift: over all items that the two answers of a pair share.
    reference_items, lost, gained: how many items the reference gave; of these, how many the candidate lacks; and how
        many it gave instead, each counted once a pair.
    reference_short, candidate_short: answers of the pairs with fewer items than asked for.
    hit_pairs: pairs whose next items are known. reference_hits, candidate_hits: as `hits` of a summary, of these pairs.

    None where no pair allows a value.
    """

    pairs: int
    identical: int
    only_reference: int
    only_candidate: int
    neither: int
    overlap: tuple[float, ...]
    rank_correlation: float | None
    least_rank_correlation: float | None
    max_score_drift: float | None
    mean_score_drift: float | None
    reference_items: int
    lost: int
    gained: int
    reference_short: int
    candidate_short: int
    hit_pairs: int
    reference_hits: tuple[int, ...]
    candidate_hits: tuple[int, ...]

    def overlap_at(self, k: int) -> float | None:
        """Mean overlap@k; None without a pair."""
        return self.overlap[min(k, len(self.overlap)) - 1] if self.overlap else None

    @property
    def overlap_whole(self) -> float | None:
        """Mean overlap of whole answers; None without a pair."""
        return self.overlap[-1] if self.overlap else None

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values, curves at a few k."""
        curves = {
            "overlap": {str(k): self.overlap_at(k) for k in CUTOFFS} if self.pairs else {},
            "reference_hit_rate": _rates(self.reference_hits, self.hit_pairs),
            "candidate_hit_rate": _rates(self.candidate_hits, self.hit_pairs),
        }
        counts = asdict(self)
        del counts["reference_hits"], counts["candidate_hits"]
        return counts | curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One question whose answers differ. overlap: of whole answers. lost, gained: the first few, best first.

    rank_correlation, max_score_drift: None where the answers share too few items.
    """

    index: int
    scene: str
    overlap: float
    rank_correlation: float | None
    max_score_drift: float | None
    num_lost: int
    num_gained: int
    lost: tuple[str, ...]
    gained: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MovedItem:
    """An item, in how many pairs the candidate lacks it, and in how many it gives it where the reference did not."""

    item_id: str
    lost: int
    gained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two targets' answers compared: whole, by scene, by pair of catalogue versions; and where they differ most.

    by_versions: "reference's -> candidate's" -> the pairs that these catalogues answered.
    most_lost, most_gained: items by how often; `count_error` is by how much their counts may be too low.
    score_sample: float64 [n, 2], reference's and candidate's score of items that they share, a fair sample.
    """

    overall: GroupComparison
    by_scene: dict[str, GroupComparison]
    by_versions: dict[str, GroupComparison]
    worst: tuple[Example, ...]
    most_lost: tuple[MovedItem, ...]
    most_gained: tuple[MovedItem, ...]
    count_error: int
    score_sample: NDArray[np.float64] = field(compare=False)

    def to_json(self) -> dict[str, Any]:
        """Everything but the sample as JSON values."""
        return {
            "overall": self.overall.to_json(),
            "by_scene": {name: group.to_json() for name, group in self.by_scene.items()},
            "by_versions": {name: group.to_json() for name, group in self.by_versions.items()},
            "worst": [asdict(example) for example in self.worst],
            "most_lost": [asdict(item) for item in self.most_lost],
            "most_gained": [asdict(item) for item in self.most_gained],
            "count_error": self.count_error,
        }


def _rates(hits: tuple[int, ...], pairs: int) -> dict[str, float]:
    if not pairs:
        return {}
    return {str(k): hits[min(k, len(hits)) - 1] / pairs if hits else 0.0 for k in CUTOFFS}
