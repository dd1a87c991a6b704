"""Recalls that ended, records, and logs of them."""

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from recall_service.request_log.files import RotatingFiles
from recall_service.request_log.frames import encode_frame, file_header
from recall_service.request_log.log import RequestLog
from recall_service.stubs.recall.v1 import recall_pb2
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedAnswer, LoggedRecall, LoggedRecalls

ARRIVAL_NS = 1_760_000_000_123_456_000


def make_request(number: int = 0, **fields: Any) -> recall_pb2.RecallRequest:
    """A request that no other number makes."""
    history = recall_pb2.ItemHistory(item_ids=[f"item-{number}", "item-b"])
    given = {"request_id": f"r-{number}", "user_id": f"user-{number}", "scene": "feed", "num_items": 2}
    return recall_pb2.RecallRequest(**{**given, "history": history, **fields})


def make_answer(number: int = 0) -> LoggedAnswer:
    """An answer of two items."""
    return LoggedAnswer(
        item_ids=[f"next-{number}", "next-b"],
        scores=[-0.5, -1.25 - number],
        proven_count=1,
        served_from=recall_pb2.SERVED_FROM_LOCAL_CACHE,
        completeness=recall_pb2.Completeness(state=recall_pb2.COMPLETENESS_STATE_COMPLETE),
        bundle="main",
        bundle_version="m1",
        catalog_version="c7",
        score_space=recall_pb2.SCORE_SPACE_CODEBOOK,
        beam_width=20,
        timings=recall_pb2.Timings(total_us=1_500),
    )


def make_record(
    number: int = 0, request: recall_pb2.RecallRequest | None = None, *, code: int = 0, reason: str = ""
) -> LoggedRecall:
    """A recall that was answered, unless the code says otherwise."""
    record = LoggedRecall(
        request=request or make_request(number),
        deadline_seconds=0.25 if code == 0 else None,
        status_code=code,
        error_reason=reason,
        answer=make_answer(number) if code == 0 else None,
        total_seconds=0.001 * (number + 1),
        server_version="0.1.0",
    )
    record.arrival_time.FromNanoseconds(ARRIVAL_NS + number * 10_000_000)
    return record


def make_records(count: int, first: int = 0) -> list[LoggedRecall]:
    """Records of recalls that were answered."""
    return [make_record(first + number) for number in range(count)]


def make_frame(records: Sequence[LoggedRecall]) -> bytes:
    """One frame that holds `records`."""
    return encode_frame(LoggedRecalls(records=records).SerializeToString(), len(records))


def write_file(path: Path, frames: Iterable[Sequence[LoggedRecall]]) -> list[int]:
    """A log file of these frames; where each frame begins, and where the last ends, in bytes."""
    data = [file_header(), *map(make_frame, frames)]
    path.write_bytes(b"".join(data))
    return [sum(map(len, data[: number + 1])) for number in range(len(data))]


def make_files(directory: Path, **changes: Any) -> RotatingFiles:
    """Files that are not rotated, unless `changes` say otherwise."""
    limits = {"max_file_bytes": 1 << 30, "max_file_seconds": 3_600.0, "max_files": 1_000}
    return RotatingFiles(directory, **{**limits, **changes})


class Counts:
    """Remembers how many records had which result."""

    def __init__(self) -> None:
        self.written = self.sampled_out = self.dropped = 0

    def __call__(self, result: str, count: int) -> None:
        setattr(self, result, getattr(self, result) + count)


def make_log(
    files: RotatingFiles, counts: Counts, *, share: float = 1.0, rule: Callable[[str], str] = str, **limits: int
) -> RequestLog:
    """A log that keeps everything, unless told otherwise."""
    return RequestLog(files, share=share, rule=rule, count=counts, **limits)


def tell(log: RequestLog, record: LoggedRecall) -> None:
    """Tell `log` of a recall, as the server does."""
    log.recall_ended(record.request.request_id, lambda message: message.CopyFrom(record))


def random_bytes(length: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(length)
