"""Gauges that are read when someone scrapes, from the scraper's thread. Knows nothing of what is read."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Read = Callable[[], Mapping[str, float]]


class Load(Collector):
    """How busy the engine is, all of one reading: see `Metrics.watch_load`."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The families of one reading."""
        load = self._read()
        for name, what in (
            ("queue_depth", "Requests waiting to be admitted."),
            ("queue_rows", "Beams of the requests waiting to be admitted."),
            ("queue_tokens", "Prompt tokens of the requests waiting to be admitted."),
            ("queue_age_seconds", "How long the request that has waited longest has waited."),
            ("inflight_requests", "Requests being searched."),
        ):
            yield GaugeMetricFamily(f"recall_{name}", what, load[name])
        for name, what, states in (
            ("beam_rows", "Rows for live beams.", ("used", "free")),
            ("context_pages", "Pages of context KV.", ("used", "cached", "free")),
        ):
            yield _by_state(f"recall_{name}", what, {state: load[f"{name}_{state}"] for state in states})


class GpuMemory(Collector):
    """What a GPU's memory is used for: see `Metrics.watch_gpu_memory`."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The family of one reading."""
        yield _by_state("recall_gpu_memory_bytes", "Memory of the GPU; its states add up to all of it.", self._read())


def _by_state(name: str, what: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, what, labels=["state"])
    for state, value in values.items():
        family.add_metric([state], value)
    return family
