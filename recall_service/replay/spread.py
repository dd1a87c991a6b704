"""A replay of a log too big for one machine: its files side by side on the actors of a Ray cluster.

Every actor asks at its share of the rate, from its own machine, which must be able to read the files and reach the
target. Outcomes stream back to whoever called, into one file whose times count from the start of the whole; machines'
clocks are taken to agree. Ray is imported when it is needed, for few have it.
"""

import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from recall_service.errors import RecallError, ReplayError
from recall_service.replay.clock_loop import precise_runner, run_on_time
from recall_service.replay.outcome import Outcome
from recall_service.replay.outcome_file import OutcomeWriter
from recall_service.replay.plan import Plan
from recall_service.replay.run import RunSettings, run_replay
from recall_service.replay.schedule import Schedule
from recall_service.replay.session import Recorded
from recall_service.replay.sources import OnDamage, Source
from recall_service.replay.target import Target
from recall_service.replay.totals import RunningTotals

_LINES_OF_BATCH = 1_000
_Columns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreading:
    """What every actor is told. schedule_of: by the number of the file, for each is a run of its own.

    share, seed: the part of a file's questions that is asked; the seed of a file is this one and its number.
    """

    make_target: Callable[[], Target]
    schedule_of: Callable[[int], Schedule]
    settings: RunSettings
    share: float
    seed: int
    skips_damaged: bool


def record_spread(source: Source, spreading: Spreading, path: Path, num_actors: int) -> Recorded:
    """Replay every file of the source on one of `num_actors` actors; outcomes go to `path`.

    Raises ReplayError when Ray is missing, and SetupError when source or target are not fit, before anything is asked.
    """
    ray = _import_ray()
    data = ray.data
    described = run_on_time(_describe(spreading.make_target()))
    parts = _count_parts(data, source, skips_damaged=spreading.skips_damaged)
    rows = (
        data.from_items(parts, override_num_blocks=len(parts))
        .map_batches(
            _PartReplay,
            fn_constructor_args=(spreading, time.time()),
            batch_size=1,
            compute=data.ActorPoolStrategy(size=min(num_actors, len(parts))),
            ray_remote_args_fn=_once_only,
        )
        .iter_batches(batch_size=None, batch_format="pyarrow")
    )
    failures, counts = _collect(rows, path, source.on_damage, ray.exceptions.RayError)
    return Recorded(
        described=described,
        outcomes=path,
        failures=tuple(failures),
        num_done=counts["num_done"],
        num_given_up=counts["num_given_up"],
        num_waited_for_room=counts["num_waited_for_room"],
    )


def _import_ray() -> Any:
    try:
        import ray.data
    except ModuleNotFoundError as error:
        raise ReplayError(
            f"--spread: {error.name} is not installed; pip install 'recall-service[ray]', or replay on this machine"
        ) from None
    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray


def _once_only() -> Mapping[str, int]:
    """A file that was replayed again, after its actor died, would have two outcomes of every question."""
    return {"max_restarts": 0, "max_task_retries": 0}


async def _describe(target: Target) -> str:
    described = await target.open()
    await target.close()
    return described


def _count_parts(data: Any, source: Source, *, skips_damaged: bool) -> list[dict[str, Any]]:
    """A row for every file: its number, path, and the index of its first question, for which all are counted once."""
    files = [str(path.absolute()) for path in source.files]  # an actor works in a directory of its own
    rows = data.from_items([{"path": path, "skips_damaged": skips_damaged} for path in files])
    counted = {row["path"]: row for row in rows.map(_count).take_all()}
    for path in files:
        if counted[path]["failure"]:
            raise ReplayError(counted[path]["failure"])
    first_indices = accumulate((counted[path]["count"] for path in files), initial=source.first_index)
    return [
        {"number": number, "path": path, "first_index": first_index}
        for number, (path, first_index) in enumerate(zip(files, first_indices, strict=False))
    ]


def _count(row: Mapping[str, Any]) -> dict[str, Any]:
    """Runs on the cluster. How many questions a file holds, or why it cannot be read; its damage is told of later."""
    source = Source((Path(row["path"]),), _ignore if row["skips_damaged"] else None)
    try:
        return {"path": row["path"], "count": sum(1 for _ in source.questions()), "failure": ""}
    except RecallError as error:
        return {"path": row["path"], "count": 0, "failure": str(error)}


def _ignore(damage: str) -> None:
    del damage


class _PartReplay:
    """Runs on the cluster: replays one file after another against one target, and gives out rows of (kind, text).

    kind: outcome, as a line of JSON; damage, as a sentence; end, the counts of a file and its failure, as JSON.
    """

    def __init__(self, spreading: Spreading, started_unix: float) -> None:
        self._spreading, self._started_unix = spreading, started_unix
        self._runner = precise_runner()
        self._target = spreading.make_target()
        self._runner.run(self._target.open())

    def __call__(self, batch: Mapping[str, Any]) -> Iterator[_Columns]:
        for number, path, first_index in zip(batch["number"], batch["path"], batch["first_index"], strict=True):
            with tempfile.TemporaryDirectory() as directory:
                outcomes, damages = Path(directory, "outcomes.jsonl"), list[str]()
                on_damage = damages.append if self._spreading.skips_damaged else None
                source = Source((Path(path),), on_damage, int(first_index))
                end = self._runner.run(self._replay(self._plan(source, int(number)), outcomes))
                yield _columns("damage", damages)
                with outcomes.open(encoding="utf-8") as lines:
                    while batch_of_lines := [line.rstrip("\n") for line in islice(lines, _LINES_OF_BATCH)]:
                        yield _columns("outcome", batch_of_lines)
                yield _columns("end", [json.dumps(end)])

    def _plan(self, source: Source, number: int) -> Plan:
        spreading, seed = self._spreading, self._spreading.seed + number
        return Plan(
            source=source,
            schedule=spreading.schedule_of(number),
            settings=replace(spreading.settings, seed=seed),
            share=spreading.share,
            seed=seed,
        )

    async def _replay(self, plan: Plan, path: Path) -> dict[str, Any]:
        totals, delay = RunningTotals(), time.time() - self._started_unix
        with OutcomeWriter(path) as writer:
            ending = await run_replay(
                plan.scheduled(),
                self._target,
                lambda outcome: writer.write(_later(outcome, delay)),
                plan.settings,
                totals,
                asyncio.Event(),
            )
        return {
            "failure": f"{plan.source.files[0]}: {ending.failure}" if ending.failure else "",
            "num_given_up": ending.num_given_up,
            "num_waited_for_room": totals.num_waited_for_room,
        }


def _later(outcome: Outcome, seconds: float) -> Outcome:
    """The same, counted from a moment that was so much earlier."""
    return replace(
        outcome,
        intended_seconds=outcome.intended_seconds + seconds,
        sent_seconds=outcome.sent_seconds + seconds,
        done_seconds=outcome.done_seconds + seconds,
    )


def _columns(kind: str, texts: list[str]) -> _Columns:
    return {"kind": [kind] * len(texts), "text": texts}


def _collect(
    batches: Iterable[Any], path: Path, on_damage: OnDamage | None, cluster_error: type[Exception]
) -> tuple[list[str], Counter[str]]:
    """Write the outcomes to `path` as they come; why files ended early, and what all files' counts come to."""
    failures: list[str] = []
    counts: Counter[str] = Counter()
    with OutcomeWriter(path) as writer:
        try:
            for batch in batches:
                for kind, text in zip(batch["kind"].to_pylist(), batch["text"].to_pylist(), strict=True):
                    if kind == "outcome":
                        writer.write_line(text)
                        counts["num_done"] += 1
                    elif kind == "damage" and on_damage is not None:
                        on_damage(text)
                    elif kind == "end":
                        end = json.loads(text)
                        if failure := end.pop("failure"):
                            failures.append(failure)
                        counts.update(end)
        except KeyboardInterrupt:
            failures.append("interrupted")
        except cluster_error as error:
            failures.append(f"the cluster failed: {str(error).strip().splitlines()[-1]}")
    return failures, counts
