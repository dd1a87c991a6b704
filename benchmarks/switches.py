"""Which optimisations the engine can be told to leave out, read from the code so that the list cannot go stale."""

import inspect
from dataclasses import fields
from typing import Any, NamedTuple

from recall_service.engine.models.loader import load_decoder
from recall_service.engine.scheduler import EngineLimits


class Switch(NamedTuple):
    """A yes-or-no setting of the engine or of loading, and what it is unless told otherwise."""

    name: str
    default: bool
    of_loading: bool

    @property
    def flipped(self) -> dict[str, Any]:
        """The setting as a keyword, the other way round."""
        return {self.name: not self.default}


def engine_switches() -> list[Switch]:
    """Every boolean field of EngineLimits and every boolean argument of load_decoder."""
    of_engine = [(limit.name, limit.default, False) for limit in fields(EngineLimits)]
    of_loading = [(name, given.default, True) for name, given in inspect.signature(load_decoder).parameters.items()]
    return [Switch(*named) for named in (*of_engine, *of_loading) if isinstance(named[1], bool)]
