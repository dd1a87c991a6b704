"""What a run has come to so far, in bounded memory: counts and histograms for the display and for the last word.

The histograms are right to 1 %; summaries are made from the outcomes on disk, which are exact.
"""

from collections import Counter

from hdrh.histogram import HdrHistogram

from recall_service.replay.outcome import Outcome

_MICROSECONDS = 1e6
_LONGEST_SECONDS = 3_600


class RunningTotals:
    """Counts questions as they are sent and done; warm-up is counted, but is in no histogram."""

    def __init__(self) -> None:
        self.num_sent = 0
        self.num_done = 0
        self.num_waited_for_room = 0
        self.last_intended_seconds = 0.0
        self.last_sent_seconds = 0.0
        self.codes: Counter[str] = Counter()
        self._latencies = _histogram()
        self._lags = _histogram()

    @property
    def num_in_flight(self) -> int:
        """Sent, and not done."""
        return self.num_sent - self.num_done

    @property
    def asked_rate(self) -> float:
        """Questions per second that the schedule wants, so far; 0 before there are two."""
        return (self.num_sent - 1) / self.last_intended_seconds if self.last_intended_seconds else 0.0

    @property
    def achieved_rate(self) -> float:
        """Questions per second that were sent, so far; 0 before there are two."""
        return (self.num_sent - 1) / self.last_sent_seconds if self.last_sent_seconds else 0.0

    def sent(self, intended_seconds: float, sent_seconds: float) -> None:
        """One question goes out."""
        self.num_sent += 1
        self.last_intended_seconds, self.last_sent_seconds = intended_seconds, sent_seconds

    def done(self, outcome: Outcome) -> None:
        """One question is answered, failed or given up on purpose."""
        self.num_done += 1
        self.codes["cancelled on purpose" if outcome.was_cancelled else outcome.code] += 1
        if not outcome.is_warm_up:
            _record(self._lags, outcome.lag_seconds)
            if not outcome.was_cancelled:
                _record(self._latencies, outcome.latency_seconds)

    def latency_seconds(self, percentile: float) -> float:
        """Of what was not given up on purpose; 0 when there is none yet."""
        return float(self._latencies.get_value_at_percentile(percentile)) / _MICROSECONDS

    def lag_seconds(self, percentile: float) -> float:
        """How late questions were sent; 0 when there is none yet."""
        return float(self._lags.get_value_at_percentile(percentile)) / _MICROSECONDS


def _histogram() -> HdrHistogram:
    return HdrHistogram(1, int(_LONGEST_SECONDS * _MICROSECONDS), 2)


def _record(histogram: HdrHistogram, seconds: float) -> None:
    histogram.record_value(max(1, min(int(seconds * _MICROSECONDS), int(_LONGEST_SECONDS * _MICROSECONDS))))
