"""Label values that are known beforehand, all others one; metric children bound for these, ahead of the hot path.

So no input can make a new series.
"""

from collections.abc import Callable, Iterable
from itertools import product
from threading import Lock
from typing import TypeVar

from prometheus_client import Gauge

OTHER = "other"  # what every value counts as that is not known

Child = TypeVar("Child")


def fold(value: str, known: frozenset[str]) -> str:
    """A value that is known, as it is; any other as OTHER."""
    return value if value in known else OTHER


class Children(dict[tuple[str, ...] | str, Child]):
    """One metric's children by label value, or by a tuple of them, where it has several labels.

    There is one for every combination of known values and OTHER, and never one more: a value that is not known finds
    the child of OTHER. A dictionary, for a known value is then found without a call.

    bind: makes the child of a combination. known: for each label of the metric, in order, the values it may have.
    """

    def __init__(self, bind: Callable[..., Child], *known: Iterable[str]) -> None:
        self._known = [frozenset(values) | {OTHER} for values in known]
        super().__init__((_key(values), bind(*values)) for values in product(*self._known))

    def __missing__(self, key: tuple[str, ...] | str) -> Child:
        values = (key,) if isinstance(key, str) else key
        return self[_key(tuple(fold(value, known) for value, known in zip(values, self._known, strict=True)))]


class OneOfEach:
    """An info gauge, always 1, that says of each name one thing at a time: what it said before is taken back.

    gauge: its first label is the name; the others say what is so.
    """

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._lock = Lock()
        self._shown: dict[str, tuple[str, ...]] = {}

    def show(self, name: str, *facts: str) -> None:
        """From now on `facts` are so of `name`. The new series is there before the old one goes."""
        with self._lock:
            before, self._shown[name] = self._shown.get(name), facts
            self._gauge.labels(name, *facts).set(1)
            if before is not None and before != facts:
                self._gauge.remove(name, *before)


def _key(values: tuple[str, ...]) -> tuple[str, ...] | str:
    return values[0] if len(values) == 1 else values
