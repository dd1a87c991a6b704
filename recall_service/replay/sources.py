"""Where questions come from: a request log, Parquet files, or JSON lines; one file, or a directory of files.

Every source is streamed and can be read again, with the same questions under the same indices.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from recall_service.errors import ReplayError
from recall_service.replay.arrival_order import in_arrival_order
from recall_service.replay.asked import Asked
from recall_service.replay.json_source import read_json_lines
from recall_service.replay.log_source import read_recorded
from recall_service.replay.parquet_source import read_parquet
from recall_service.request_log.files import log_files

OnDamage = Callable[[str], None]
_Read = Callable[[Path, int, OnDamage | None], Iterator[Asked]]
_KINDS: dict[str, _Read] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".parquet": read_parquet,
}

_MORE_THAN_ONE_BATCH = 1_000  # whose entries arrive together


@dataclass(frozen=True, slots=True)
class Source:
    """Questions on disk. `files` are read one after another; `first_index` is the index of the first question.

    on_damage: told of every record that cannot be read, which is then left out; None: it raises ReplayError or
    RequestLogError naming the file and the line, row or offset.
    """

    files: tuple[Path, ...]
    on_damage: OnDamage | None = None
    first_index: int = 0

    def questions(self) -> Iterator[Asked]:
        """All of them, in the order they arrived, streamed; arrivals count from the first one's."""
        return in_arrival_order(self._in_files())

    def _in_files(self) -> Iterator[Asked]:
        index = self.first_index
        for path in self.files:
            for asked in _KINDS.get(path.suffix, read_recorded)(path, index, self.on_damage):
                yield asked
                index = asked.index + 1


def open_source(path: Path, on_damage: OnDamage | None = None) -> Source:
    """What is at `path`: a file ending in .jsonl, .ndjson or .parquet, another as a request log, or a directory of one.

    Raises ReplayError when there is nothing to read.
    """
    if path.is_file():
        return Source((path,), on_damage)
    if not path.is_dir():
        raise ReplayError(f"{path}: no such file or directory; give a request log, Parquet, or JSON lines")
    files = log_files(path) or sorted(entry for entry in path.iterdir() if entry.suffix in _KINDS)
    if not files:
        raise ReplayError(f"{path}: holds no request log, no .parquet and no .jsonl file; give the directory of some")
    return Source(tuple(files), on_damage)


def sampled(questions: Iterable[Asked], share: float, seed: int) -> Iterator[Asked]:
    """A random part of the questions, about `share` of them; the same ones for the same seed, as they were."""
    if share >= 1:
        return iter(questions)
    draws = random.Random(f"sample {seed}")  # noqa: S311  not for secrets
    return (asked for asked in questions if draws.random() < share)


def limited(questions: Iterable[Asked], limit: int | None) -> Iterator[Asked]:
    """The first `limit` questions; None: all."""
    return islice(questions, limit)


def with_arrivals(questions: Iterable[Asked]) -> Iterator[Asked]:
    """The same questions. Raises ReplayError when so many arrived at one time that nothing says when they did."""
    source = iter(questions)
    beginning = list(islice(source, _MORE_THAN_ONE_BATCH))
    if len(beginning) > 1 and beginning[0].arrival_seconds == beginning[-1].arrival_seconds:
        raise ReplayError("the source does not say when its questions arrived; give --rate, --poisson or --fast")
    return chain(beginning, source)
