"""A request log of the service as questions, each with what was answered."""

from collections.abc import Callable, Iterator
from pathlib import Path

from recall_service.replay.answers import from_log
from recall_service.replay.asked import Asked
from recall_service.request_log.reader import read_log
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall


def read_recorded(path: Path, first_index: int, on_damage: Callable[[str], None] | None) -> Iterator[Asked]:
    """The questions of one file, in the order their calls ended; arrivals in seconds of Unix time.

    Raises RequestLogError, unless `on_damage` is there to be told of what cannot be read.
    """
    records = read_log(
        path,
        skip_damaged=on_damage is not None,
        on_damage=None if on_damage is None else lambda damage: on_damage(str(damage)),
    )
    for index, record in enumerate(records, start=first_index):
        yield _question(record, index)


def _question(record: LoggedRecall, index: int) -> Asked:
    return Asked(
        index=index,
        request=record.request,
        arrival_seconds=record.arrival_time.ToNanoseconds() / 1e9,
        deadline_seconds=record.deadline_seconds if record.HasField("deadline_seconds") else None,
        expected=from_log(record.answer) if record.HasField("answer") else None,
    )
