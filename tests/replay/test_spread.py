"""Files of a log side by side on a Ray cluster, of this machine alone."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from recall_service.errors import ReplayError
from recall_service.replay.options import Timing
from recall_service.replay.run import RunSettings
from recall_service.replay.schedule import Schedule
from recall_service.replay.sources import open_source
from recall_service.replay.spread import Spreading, record_spread
from tests.replay.questions import FakeTarget, many
from tests.replay.test_replay_cli import end, outcomes_of, start
from tests.rpc.fake_backend import FakeBackend, running


def write_parts(directory: Path, *sizes: int) -> Path:
    directory.mkdir()
    for number, size in enumerate(sizes):
        lines = [json.dumps({"history": [f"part-{number}"], "scene": f"{index}"}) for index in range(size)]
        (directory / f"part-{number}.jsonl").write_text("\n".join(lines))
    return directory


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install '.[ray]'")
async def test_three_files_on_two_actors(tmp_path: Path) -> None:
    source, out = write_parts(tmp_path / "parts", 30, 0, 20), tmp_path / "out"
    (source / "part-1.jsonl").write_text('{"history": []}\n{\n{"history": ["x"]}\n')
    backend = FakeBackend()
    async with running(backend) as server:
        options = ("--spread", 2, "--rate", 50, "--skip-damaged", "--out", out, "--json")
        code, stdout, stderr = await end(await start(source, "--target", server.address, *options))
    assert code == 0, stderr
    document = json.loads(stdout.splitlines()[-1])
    assert document["failures"] == []
    assert document["summary"]["overall"]["requests"] == 52
    assert f"skipped: {source / 'part-1.jsonl'}, line 2: not JSON" in stderr
    outcomes = outcomes_of(out / "target.jsonl")
    assert sorted(outcome.index for outcome in outcomes) == list(range(52))
    asked = {asked.index: asked.request.scene for asked in open_source(source, lambda _: None).questions()}
    assert {outcome.index: outcome.scene for outcome in outcomes} == asked  # indices are those of one reader
    first = sorted(outcome.intended_seconds for outcome in outcomes if outcome.index < 30)
    assert first[-1] - first[0] == pytest.approx(29 / 25)  # half the rate for each of two side by side
    assert first[0] > 0  # seconds from the start of the whole, when no actor was there yet


def test_without_ray_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.data", None)
    spreading = Spreading(
        make_target=FakeTarget,
        schedule_of=lambda _: Timing(fast=True).schedule,
        settings=RunSettings(),
        share=1.0,
        seed=0,
        skips_damaged=False,
    )
    with pytest.raises(ReplayError, match=r"pip install 'recall-service\[ray\]', or replay on this machine"):
        record_spread(open_source(write_parts(tmp_path / "parts", 1)), spreading, tmp_path / "out", 2)


def times(schedule: Schedule, number: int = 50) -> list[float]:
    return [seconds for seconds, _ in schedule(many(number)) if seconds is not None]


def test_parts_share_the_rate_and_have_chances_of_their_own() -> None:
    assert times(Timing(rate=30).of_part(3, 1)) == [index / 10 for index in range(50)]
    parts = [times(Timing(poisson=30, seed=5).of_part(3, number)) for number in range(2)]
    assert parts[0] != parts[1]
    assert parts[0] == times(Timing(poisson=10, seed=5).schedule)
