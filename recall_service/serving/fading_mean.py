"""The mean of recent values and how far they lie from it, kept as TCP keeps them of round trips (Jacobson, 1988)."""

_MOST_VALUES = 8.0  # that the mean is over: the newest weighs at least an eighth, however many have just come


class FadingMean:
    """Of values that count half of what they did once `half_life_seconds` have passed."""

    def __init__(self, half_life_seconds: float) -> None:
        self._half_life_seconds = half_life_seconds
        self._last = 0.0
        self._count = self._mean = self._deviation = 0.0

    def add(self, value: float, now: float) -> None:
        """Take note of a value. now: seconds of a clock that does not go back."""
        self._count = min(self._count * self._faded(now) + 1.0, _MOST_VALUES)
        self._mean += (value - self._mean) / self._count
        self._deviation += (abs(value - self._mean) - self._deviation) / self._count
        self._last = now

    @property
    def low(self) -> float:
        """A value that few fall below: the mean less twice the mean deviation from it. 0 while there is no value."""
        return self._mean - 2.0 * self._deviation

    @property
    def high(self) -> float:
        """A value that few exceed: the mean and twice the mean deviation from it. 0 while there is no value."""
        return self._mean + 2.0 * self._deviation

    def confidence(self, now: float) -> float:
        """How far the values can still be relied on: 1 while there are any of late, towards 0 without news."""
        return min(1.0, self._count * self._faded(now))

    def _faded(self, now: float) -> float:
        return float(0.5 ** (max(0.0, now - self._last) / self._half_life_seconds))
