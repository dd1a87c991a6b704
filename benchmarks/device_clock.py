"""Milliseconds of a device's own work, apart from the time that the host takes to ask for it.

A GPU works off a queue. Marks are events in that queue. With a head start the queue first holds a wait, during which
the host asks for all the work that is to be timed: then no gap between two kernels is the host's. On a CPU, where work
is done when it is asked for, marks are readings of the host's clock.
"""

import time

import torch

_CALIBRATION_CYCLES = 10_000_000
_MOST_WAITS = 20
_MOST_CYCLES = 4_000_000_000  # about two seconds


class DeviceClock:
    """Marks in the queue of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._events: list[torch.cuda.Event] = []
        self._readings: list[float] = []
        self._cycles_per_millisecond = self._calibrate() if device.type == "cuda" else 0.0

    def synchronise(self) -> None:
        """Wait until everything asked for is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def give_head_start(self, milliseconds: float) -> None:
        """Let the device wait so long before it does what is asked next."""
        if self.device.type == "cuda":
            torch.cuda._sleep(min(int(milliseconds * self._cycles_per_millisecond), _MOST_CYCLES))

    def mark(self) -> None:
        """Note when everything asked for so far is done."""
        if self.device.type != "cuda":
            self._readings.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def host_is_ahead(self) -> bool:
        """Whether the device has not come to the latest mark yet: it was still busy when the host had asked for all.

        Not that it is far behind: a queue holds about a thousand launches, and the host waits for room in a full one.
        """
        return self.device.type != "cuda" or not self._events[-1].query()

    def take_laps(self) -> list[float]:
        """Milliseconds between every two neighbouring marks; waits for the last, and forgets all."""
        self.synchronise()
        laps = [first.elapsed_time(second) for first, second in zip(self._events, self._events[1:], strict=False)]
        laps += [1000 * (second - first) for first, second in zip(self._readings, self._readings[1:], strict=False)]
        self._events.clear()
        self._readings.clear()
        return laps

    def _calibrate(self) -> float:
        """How many cycles of a wait pass in a millisecond, once two waits agree: the clock comes up from idle."""
        milliseconds = [float("inf")]
        for _ in range(_MOST_WAITS):
            self.mark()
            torch.cuda._sleep(_CALIBRATION_CYCLES)
            self.mark()
            milliseconds += self.take_laps()
            if milliseconds[-1] > 0.95 * milliseconds[-2]:
                break
        return _CALIBRATION_CYCLES / milliseconds[-1]
