"""Everything about a replay but its targets: which questions, when, and how. The same for every target it is run on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from recall_service.replay.asked import Asked
from recall_service.replay.run import RunSettings
from recall_service.replay.schedule import Schedule, Scheduled, original_timing
from recall_service.replay.sources import Source, limited, sampled, with_arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """share, seed: the random part of the source's questions that is asked. limit: of them, the first so many."""

    source: Source
    schedule: Schedule
    settings: RunSettings
    share: float = 1.0
    seed: int = 0
    limit: int | None = None

    def questions(self) -> Iterator[Asked]:
        """The questions that are asked, streamed; every call reads the source anew."""
        return limited(sampled(self.source.questions(), self.share, self.seed), self.limit)

    def scheduled(self) -> Iterator[Scheduled]:
        """The same with the times they are to be sent at. Raises ReplayError when the source does not suit that."""
        return self.schedule(self.questions())


def recorded_timing(speed: float) -> Schedule:
    """`original_timing` for a source that may not say when questions arrived: that raises ReplayError."""
    timing = original_timing(speed)

    def schedule(questions: Iterable[Asked]) -> Iterator[Scheduled]:
        return timing(with_arrivals(questions))

    return schedule
