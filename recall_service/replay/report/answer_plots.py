"""Pictures of how two targets' answers differ: overlap, scores, hits."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recall_service.replay.judging.comparison import Comparison, GroupComparison
from recall_service.replay.report.plots import Plot, style
from recall_service.replay.report.svg import Series, chart, linear_axis
from recall_service.replay.report.wording import number, share

_MAX_SCENES = 4  # with a curve of their own


def overlap_curves(comparison: Comparison) -> Plot | None:
    """overlap@k, overall and of the largest scenes; None when nothing was compared."""
    if not comparison.overall.pairs:
        return None
    scenes = {name: scene for name, scene in comparison.by_scene.items() if scene.pairs}
    largest = sorted(scenes, key=lambda name: -scenes[name].pairs)[: _MAX_SCENES if len(scenes) > 1 else 0]
    groups: dict[str, GroupComparison] = {"all": comparison.overall} | {name: scenes[name] for name in largest}
    lowest = min(min(group.overlap) for group in groups.values())
    deepest = max(len(group.overlap) for group in groups.values())
    return Plot(
        title="Overlap@k",
        remark="The share of the first k items that both answers hold, mean over all pairs.",
        legend={style(place): name for place, name in enumerate(groups)},
        svg=chart(
            description=f"Mean overlap at k from 1 to {deepest}: {share(comparison.overall.overlap[0])} at 1, "
            f"{share(comparison.overall.overlap[-1])} at {deepest}.",
            x=linear_axis("k", 1, deepest, number),
            y=linear_axis("overlap@k", _zoomed_low(lowest), 1, share),
            series=[
                Series(*_curve(group.overlap, deepest), style(place))
                for place, group in reversed(list(enumerate(groups.values())))
            ],
        ),
    )


def score_drift(comparison: Comparison, reference: str) -> Plot | None:
    """By how much the target's score of an item differs, over the reference's; None when the answers share no item."""
    sample = comparison.score_sample
    if not len(sample):
        return None
    scores, drift = sample[:, 0], sample[:, 1] - sample[:, 0]
    greatest = comparison.overall.max_score_drift or 0.0
    room = max(float(np.abs(drift).max()), 1e-6)
    return Plot(
        title="Scores",
        remark=f"A fair sample of {len(sample):,} items that both answers hold. On the line the scores are equal.",
        legend={},
        svg=chart(
            description=f"Score at the target less that of {reference}, over the latter, which goes from "
            f"{number(float(scores.min()))} to {number(float(scores.max()))}. "
            f"The greatest drift of any shared item is {number(greatest)}.",
            x=linear_axis(f"score, {reference}", float(scores.min()), float(scores.max()), number),
            y=linear_axis("score drift", -room, room, number),
            series=[
                Series([scores.min(), scores.max()], [0, 0], "even"),
                Series(scores, drift, style(0), is_dots=True),
            ],
        ),
    )


def hit_rates(comparison: Comparison, reference: str) -> Plot | None:
    """hit@k of both, over the pairs whose next items are known; None when there are none."""
    overall = comparison.overall
    if not overall.hit_pairs:
        return None
    depth = max(len(overall.overlap), 2)
    target = [count / overall.hit_pairs for count in overall.candidate_hits] or [0.0]
    other = [count / overall.hit_pairs for count in overall.reference_hits] or [0.0]
    wide = f"{style(1)} wide"  # the target's line may lie upon it
    return Plot(
        title="Hit rate@k",
        remark="The share of answers whose first k items hold one that the user took next.",
        legend={style(0): "target", wide: reference},
        svg=chart(
            description=f"Hit rate at {depth}: target {share(target[-1])}, {reference} {share(other[-1])}.",
            x=linear_axis("k", 1, depth, number),
            y=linear_axis("hit rate@k", 0, max(target[-1], other[-1]) * 1.05 or 1, share),
            series=[Series(*_curve(other, depth), wide), Series(*_curve(target, depth), style(0))],
        ),
    )


def _curve(values: Sequence[float], depth: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Every k and the value there, from 1 to the depth; beyond its end a curve stays as it is."""
    k = np.arange(1, depth + 1)
    return k, np.asarray(values, np.float64)[np.minimum(k, len(values)) - 1]


def _zoomed_low(lowest: float) -> float:
    """Where a scale that ends at 1 begins, so that small differences show."""
    return next((low for low in (0.99, 0.9, 0.8, 0.5) if lowest >= low), 0.0)
