"""What a PromQL expression reads, and what the service declares."""

import re
from collections.abc import Iterator
from functools import cache

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from recall_service.observability.metrics import Metrics

_KEYWORDS = {"and", "or", "unless", "bool", "offset"}
_LEFT_OUT = (r'"[^"]*"', r"\{[^}]*\}", r"\[[^\]]*\]", r"\b(by|on|without|ignoring|group_left|group_right) ?\([^)]*\)")
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}


def names_in(expr: str) -> set[str]:
    """Every metric and recording rule that `expr` reads."""
    for pattern in _LEFT_OUT:
        expr = re.sub(pattern, " ", expr)
    return set(re.findall(r"(?<![\w:.$])[a-zA-Z_:][\w:]*\b(?!\s*\()", expr)) - _KEYWORDS


def values_in(expr: str) -> set[tuple[str, str]]:
    """Every (label, value) that `expr` looks for, the alternatives of a regular expression one by one."""
    matchers = re.findall(r'(\w+)(?:=|!=|=~|!~)"([^"]*)"', expr)
    return {(label, value) for label, values in matchers for value in values.split("|") if value[:1] != "$"}


def declared() -> dict[str, set[str]]:
    """Every metric of the service: its family's name, as exposed -> the names of its series."""
    return {
        family.name + ("_total" if family.type == "counter" else ""): set(_series(family)) for family in _families()
    }


def declared_values() -> set[tuple[str, str]]:
    """Every (label, value) that is exposed before the first event."""
    return {pair for family in _families() for sample in family.samples for pair in sample.labels.items()}


class _AnyReading(dict[str, float]):
    """A reading of load or memory that holds whatever is looked up."""

    def __missing__(self, name: str) -> float:
        return 0.0


@cache
def _families() -> list[Metric]:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.watch_load(_AnyReading)
    metrics.watch_gpu_memory(_AnyReading)
    metrics.watch_process()
    return list(registry.collect())


def _series(family: Metric) -> Iterator[str]:
    for suffix in _SUFFIXES.get(family.type, ("",)):
        yield family.name + suffix
