"""Catalogues for engines whose steps have fixed shapes, and such an engine on a CPU."""

from functools import cache, partial

import numpy as np

from recall_service.engine.engine import BeamEngine
from recall_service.engine.kernels.fixed import REFERENCE_KERNELS
from tests.oracles.tries import Catalogue

VOCAB = 32
FixedEngine = partial(BeamEngine, fixed_kernels=REFERENCE_KERNELS)


@cache
def catalogue(levels: int, num_items: int = 150) -> Catalogue:
    return Catalogue.random(np.random.default_rng(levels), (7,) * levels, num_items, VOCAB)
