"""What a comparison found, in sentences: whether answers differ, which items went, how far scores moved."""

from recall_service.replay.judging.comparison import Comparison, MovedItem
from recall_service.replay.report.wording import number, share, shortened

_SHOWN_ITEMS = 3


def findings(comparison: Comparison, reference: str) -> list[str]:
    """The sentences, the plainest first. reference: what the other target is called."""
    overall = comparison.overall
    if not overall.pairs:
        return [f"No question was answered by both the target and {reference}: nothing could be compared."]
    sentences = [_likeness(comparison, reference), *_items(comparison, reference), _scores(comparison)]
    if overall.only_reference:
        sentences.append(f"{_questions(overall.only_reference)} answered by {reference} alone.")
    if overall.only_candidate:
        sentences.append(f"{_questions(overall.only_candidate)} answered by the target alone.")
    if overall.candidate_short != overall.reference_short:
        sentences.append(
            f"Short answers: {overall.reference_short:,} of {reference}, {overall.candidate_short:,} of the target."
        )
    return sentences + _versions(comparison)


def _likeness(comparison: Comparison, reference: str) -> str:
    overall = comparison.overall
    if overall.identical == overall.pairs:
        return f"All {overall.pairs:,} answers hold the same items in the same order as those of {reference}."
    differ = overall.pairs - overall.identical
    told = f"overlap of whole answers {share(overall.overlap[-1])}"
    if overall.rank_correlation is not None:
        told += f", mean rank correlation {overall.rank_correlation:.4f}, least {overall.least_rank_correlation:.4f}"
    return f"{differ:,} of {overall.pairs:,} answers differ from those of {reference} in items or order: {told}."


def _items(comparison: Comparison, reference: str) -> list[str]:
    overall = comparison.overall
    if not overall.lost and not overall.gained:
        return ["No item was lost and none gained."]
    moved = f"{overall.lost:,} were lost; {overall.gained:,} others were gained."
    sentences = [f"Of {overall.reference_items:,} items that {reference} gave, {moved}"]
    gone = [item for item in comparison.most_lost if item.lost > 1 and not item.gained]
    if gone:
        sentences.append(f"Lost most, and nowhere gained: {_named(gone)}.")
    elif comparison.most_lost:
        sentences.append(f"Lost most: {_named(comparison.most_lost)}.")
    return sentences


def _named(items: list[MovedItem] | tuple[MovedItem, ...]) -> str:
    return ", ".join(f"{item.item_id} (in {item.lost:,} answers)" for item in items[:_SHOWN_ITEMS])


def _scores(comparison: Comparison) -> str:
    overall = comparison.overall
    if overall.max_score_drift is None or overall.mean_score_drift is None:
        return "The answers share no item, so no score can be compared."
    if not overall.max_score_drift:
        return "Every shared item has the same score."
    return (
        f"Scores of shared items drift by up to {number(overall.max_score_drift)}, "
        f"{number(overall.mean_score_drift)} on average."
    )


def _questions(count: int) -> str:
    return "1 question was" if count == 1 else f"{count:,} questions were"


def _versions(comparison: Comparison) -> list[str]:
    pairs = [versions.split(" -> ") for versions in comparison.by_versions if " -> " in versions]
    changed = [f"{shortened(old)} to {shortened(new)}" for old, new in pairs if old != new]
    return [f"The catalogue changed ({', '.join(changed)})."] if changed else []
