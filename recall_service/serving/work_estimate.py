"""How long a search will take, judged by those before it. Knows neither the queue nor the engine: it is told.

Three measurements, each of about the last second, so that an engine that turns slow, or fast again, is known for it
within that time:

- service: how long searches took once the engine had taken them in.
- drain: how long the engine takes for a token of work while more waits than it can run at once.
- surprise: how much longer than foreseen searches waited. It makes good what the other two do not know: that room comes
  free in lumps, and that a slow-down has only just begun.

Drain and surprise are forgotten when nothing confirms them: whoever is refused for them teaches nothing, so that a
wrong one would otherwise stay for good.
"""

from recall_service.serving.fading_mean import FadingMean

_HALF_LIFE_SECONDS = 0.25  # of a measurement; of drain, in seconds in which there was more than could run
_UNCONFIRMED_SECONDS = 2.0  # after which drain counts half; after twice as long a sixteenth, and soon nothing


class WorkEstimate:
    """The measurements and what follows from them. All times are seconds; `now` is of a clock that does not go back."""

    def __init__(self) -> None:
        self._service = FadingMean(_HALF_LIFE_SECONDS)
        self._surprise = FadingMean(_HALF_LIFE_SECONDS)
        self._busy_seconds = self._drained_work = 0.0
        self._busy_since: float | None = None  # the last end that left some waiting
        self._drain_confirmed = 0.0  # when drain was last measured

    @property
    def least_service_seconds(self) -> float:
        """What hardly any search takes less than, once it runs; 0 while there was none."""
        return max(0.0, self._service.low)

    @property
    def most_service_seconds(self) -> float:
        """What hardly any search takes more than, once it runs; 0 while there was none."""
        return self._service.high

    def wait_seconds(self, work: int, now: float) -> float:
        """How long the engine takes to work off so much; towards 0 the longer nobody has had to wait."""
        if not self._drained_work:
            return 0.0
        confidence = 0.5 ** ((now - self._drain_confirmed) / _UNCONFIRMED_SECONDS) ** 2
        return float(work * self._busy_seconds / self._drained_work * confidence)

    def surprise_seconds(self, now: float) -> float:
        """By how much a wait may be longer than `wait_seconds` says; negative when waits turn out shorter."""
        return self._surprise.high * self._surprise.confidence(now)

    def note_service(self, seconds: float, now: float) -> None:
        """A search was answered so long after it was taken in."""
        self._service.add(seconds, now)

    def note_service_at_least(self, seconds: float, now: float) -> None:
        """A search was given up so long after it was taken in. Tells something only where that is longer than most."""
        if seconds > (self._service.low + self._service.high) / 2:
            self._service.add(seconds, now)

    def note_wait(self, seconds: float, foreseen_seconds: float, now: float) -> None:
        """A search that had to wait has waited so long; `wait_seconds` had foreseen another time."""
        self._surprise.add(seconds - foreseen_seconds, now)

    def note_ended(self, work: int, now: float, *, more_waits: bool) -> None:
        """Searches of so much work, 0 for none, have just ended, and whether others wait that had no room beside them.

        With some waiting at one end and still at the next, the engine had all it could do between the two.
        """
        if more_waits and self._busy_since is not None:
            seconds = now - self._busy_since
            faded = 0.5 ** (seconds / _HALF_LIFE_SECONDS)
            self._busy_seconds = self._busy_seconds * faded + seconds
            self._drained_work = self._drained_work * faded + work
            self._drain_confirmed = now
        self._busy_since = now if more_waits else None
