"""Which input has which number: seed, target and number are enough to make it again, in any process."""

import random

from tests.fuzz.hostile import Hostile, Target


def make_input(target: Target, name: str, seed: int, number: int) -> Hostile:
    """Input `number` of the target called `name`."""
    return target.make(random.Random(f"{seed} {name} {number}"))


def numbers_of(shares: dict[str, float], total: int) -> dict[str, int]:
    """How many inputs each target gets of `total`, by its share; at least one, and `total` in all."""
    weight = sum(shares.values())
    counts = {name: max(1, int(total * share / weight)) for name, share in shares.items()}
    largest = max(counts, key=lambda name: counts[name])
    counts[largest] = max(1, counts[largest] + total - sum(counts.values()))
    return counts
