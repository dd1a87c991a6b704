"""Which optimisations the engine can be told to leave out, read from the code so that the list cannot go stale."""

import inspect
from dataclasses import fields
from typing import Any, NamedTuple

from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.loader import load_decoder
from recall_service.engine.scheduler import EngineLimits

ENGINE, LIMITS, LOADING = "engine", "limits", "loading"
OF_GPUS = {"captured"}


class Switch(NamedTuple):
    """A yes-or-no setting of the engine, of its limits or of loading, and what it is unless told otherwise."""

    of: str
    name: str
    default: bool

    @property
    def flipped(self) -> dict[str, Any]:
        """The setting as a keyword, the other way round."""
        return {self.name: not self.default}


def engine_switches() -> list[Switch]:
    """Every boolean field of BeamEngine and EngineLimits and argument of load_decoder, but for what only GPUs know."""
    of_engine = [(ENGINE, setting.name, setting.default) for setting in fields(BeamEngine) if setting.init]
    of_limits = [(LIMITS, setting.name, setting.default) for setting in fields(EngineLimits)]
    of_loading = [(LOADING, name, given.default) for name, given in inspect.signature(load_decoder).parameters.items()]
    every = [Switch(*found) for found in (*of_engine, *of_limits, *of_loading) if isinstance(found[2], bool)]
    return [switch for switch in every if switch.name not in OF_GPUS]
