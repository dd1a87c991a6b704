"""Metric children bound ahead of the hot path, for known label values only: no input can make a new series."""

from collections.abc import Iterable
from itertools import product
from typing import Generic, TypeVar

from prometheus_client.metrics import MetricWrapperBase

OTHER = "other"  # what every value counts as that is not known

Metric = TypeVar("Metric", bound=MetricWrapperBase)


class Children(Generic[Metric]):
    """One metric's children for every combination of its known label values and OTHER, and never one more.

    known: for each label of the metric, in order, the values it may have.
    """

    def __init__(self, metric: Metric, *known: Iterable[str]) -> None:
        self._known = [frozenset(values) | {OTHER} for values in known]
        self._children = {values: metric.labels(*values) for values in product(*self._known)}

    def __call__(self, *values: str) -> Metric:
        """The child for these label values, each folded to OTHER unless it is known."""
        child = self._children.get(values)
        if child is not None:
            return child
        folded = (value if value in known else OTHER for value, known in zip(values, self._known, strict=True))
        return self._children[tuple(folded)]
