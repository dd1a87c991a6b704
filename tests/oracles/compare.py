"""Whether the engine's answer is the oracle's, up to what rounding may move."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recall_service.engine.request import BeamResult
from tests.oracles.recompute_beam import Beam, Search

PER_TOKEN = 1e-5  # fp32 logits of two implementations differ by less, in log-probability of one token


class Comparison(NamedTuple):
    """faults: what differs, for people; empty when the answers are the same.

    is_near_call: the oracle kept or pruned something by less than the tolerance, so the rest of the search may lawfully
    differ, and only scores of common paths were compared.
    """

    faults: list[str]
    max_score_difference: float
    is_near_call: bool


def compare(result: BeamResult, search: Search, per_token: float = PER_TOKEN) -> Comparison:
    """Same paths, same order where the oracle's scores differ by `per_token` a token, same log-probs, same bound.

    With `per_token` 0 everything must be equal, ties included.
    """
    tolerance = per_token * result.tokens.shape[1]
    is_near_call = search.margin < tolerance
    expected = {beam.path: beam for beam in search.beams}
    paths = [tuple(path) for path in result.tokens.tolist()]
    faults, greatest = [], 0.0
    for place, (path, score, log_probs) in enumerate(zip(paths, result.scores, result.log_probs, strict=True)):
        if path not in expected:
            if not is_near_call:
                faults.append(f"place {place}: {path} is not in the oracle's answer")
            continue
        beam = expected[path]
        difference = abs(float(score) - beam.score)
        greatest = max(greatest, difference)
        step_difference = max(
            abs(float(ours) - theirs) for ours, theirs in zip(log_probs, beam.log_probs or log_probs, strict=True)
        )
        if difference > tolerance or step_difference > per_token:
            faults.append(f"place {place}: {path} scores {score}, the oracle says {beam.score}")
        if not is_near_call and not _is_in_place(search.beams, place, beam, tolerance):
            faults.append(f"place {place}: {path} is out of order")
    if not is_near_call:
        if len(set(paths)) != len(expected) or len(paths) != len(expected):
            faults.append(f"{len(paths)} paths; the oracle has {len(expected)}")
        if search.bound != result.bound and not abs(search.bound - result.bound) <= tolerance:
            faults.append(f"bound {result.bound}; the oracle says {search.bound}")
    return Comparison(faults, greatest, is_near_call)


def certificate_faults(result: BeamResult, truth: Sequence[Beam], per_token: float = PER_TOKEN) -> list[str]:
    """What of the certificate is not so. `truth`: every complete path there is, best first.

    The bound must bound every path that was lost, the proven beams must be the true top, and every path that beats the
    bound must be among them.
    """
    tolerance = per_token * result.tokens.shape[1]
    paths = [tuple(path) for path in result.tokens.tolist()]
    found, proven, faults = set(paths), set(paths[: result.proven_count]), []
    for beam in truth:
        if beam.path not in found and beam.score > result.bound + tolerance:
            faults.append(f"{beam.path} was lost at {beam.score}, above the bound {result.bound}")
        if beam.path not in proven and beam.score > result.bound + tolerance:
            faults.append(f"{beam.path} at {beam.score} beats the bound {result.bound} and is not proven")
    true_scores = np.array([beam.score for beam in truth[: result.proven_count]])
    for place in np.flatnonzero(np.abs(result.scores[: result.proven_count] - true_scores) > tolerance):
        faults += [f"place {place} is proven at {result.scores[place]}; the true one has {true_scores[place]}"]
    return faults


def _is_in_place(beams: list[Beam], place: int, beam: Beam, tolerance: float) -> bool:
    if place >= len(beams):
        return False
    return beams[place].path == beam.path or abs(beams[place].score - beam.score) < tolerance
