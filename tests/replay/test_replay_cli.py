"""`recall-service replay`: a process that asks a server in this one, and what it leaves behind."""

import asyncio
import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from item_catalog.building.builder import build_catalog
from item_catalog.storage.directory import save_catalog
from recall_service.cli import app
from recall_service.replay.outcome import Outcome
from recall_service.stubs.recall.v1 import recall_pb2
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedAnswer, LoggedRecall
from tests.request_log.recalls import write_file
from tests.rpc.fake_backend import FakeBackend, make_answer, running
from tests.serving.bundles import LAYOUT, small_rows, write_bundle

REPOSITORY = Path(__file__).parents[2]


def log_of(path: Path, number: int, *, worst: float = -1.25) -> Path:
    """A log of `number` calls a millisecond apart, answered as the fake server answers but for the last score."""
    answer = make_answer()
    records = []
    for index in range(number):
        record = LoggedRecall(
            request=recall_pb2.RecallRequest(
                history=recall_pb2.ItemHistory(item_ids=[f"item-{index}"]), scene=("feed", "mail")[index % 2]
            ),
            answer=LoggedAnswer(
                item_ids=answer.item_ids,
                scores=[*answer.scores[:-1], worst],
                bundle_version="m1",
                catalog_version="c7",
            ),
        )
        record.arrival_time.FromMilliseconds(1_700_000_000_000 + index)
        records.append(record)
    write_file(path, [records])
    return path


async def start(*arguments: object, shell: str = "") -> asyncio.subprocess.Process:
    """The command in a process of its own; `shell` goes before it."""
    words = [sys.executable, "-m", "recall_service", "replay", *map(str, arguments)]
    if shell:
        words = ["bash", "-c", f'{shell}; exec "$@"', "bash", *words]
    return await asyncio.create_subprocess_exec(
        *words, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def end(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    stdout, stderr = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, stdout.decode(), stderr.decode()


def outcomes_of(path: Path) -> list[Outcome]:
    return [Outcome.from_json(line) for line in path.read_bytes().splitlines()]


async def test_a_log_on_the_server_that_wrote_it(tmp_path: Path) -> None:
    log, out = log_of(tmp_path / "calls.rlog", 200), tmp_path / "out"
    gate = ("--require", "min_overlap@3=1", "--require", "max_score_drift=0", "--require", "max_error_share=0")
    async with running(FakeBackend()) as server:
        process = await start(log, "--target", server.address, "--against", "logged", *gate, "--out", out, "--json")
        code, stdout, stderr = await end(process)
    assert code == 0, stderr
    document = json.loads(stdout)
    assert document == {**json.loads((out / "summary.json").read_text()), "failures": [], "out": str(out)}
    assert document["comparison"]["overall"]["pairs"] == 200
    assert [verdict["passes"] for verdict in document["verdicts"]] == [True] * 3
    outcomes = outcomes_of(out / "target.jsonl")
    assert sorted(outcome.index for outcome in outcomes) == list(range(200))
    assert [outcome.intended_seconds for outcome in sorted(outcomes, key=lambda outcome: outcome.index)] == (
        pytest.approx([index / 1_000 for index in range(200)], abs=1e-6)
    )
    assert {outcome.scene for outcome in outcomes} == {"feed", "mail"}
    assert "200 sent, 0 in flight" in stderr
    assert "<html" in (out / "report.html").read_text()


async def test_a_gate_that_fails_says_so_in_a_sentence(tmp_path: Path) -> None:
    log = log_of(tmp_path / "calls.rlog", 20, worst=-9.0)
    async with running(FakeBackend()) as server:
        options = ("--fast", "--require", "max_score_drift=0.5", "--out", tmp_path / "out")
        code, stdout, _ = await end(await start(log, "--target", server.address, "--against", "logged", *options))
    assert code == 1
    assert "greatest score drift is 7.75, at most 0.5 was asked: fails\n" in stdout
    assert f"report: {tmp_path / 'out' / 'report.html'}\n" in stdout


async def test_an_interrupt_leaves_what_was_measured(tmp_path: Path) -> None:
    log, out = log_of(tmp_path / "calls.rlog", 5_000), tmp_path / "out"
    backend = FakeBackend()
    async with running(backend) as server:
        process = await start(log, "--target", server.address, "--rate", "50", "--out", out, "--slo", "100")
        await asyncio.wait_for(enough(backend, 10), 30)
        process.send_signal(signal.SIGINT)
        code, stdout, stderr = await end(process)
    assert code == 1
    outcomes = outcomes_of(out / "target.jsonl")
    assert 9 <= len(outcomes) < 1_000
    assert f"warning: target: ended early: interrupted; {len(outcomes)} outcomes are kept" in stderr
    assert f"target: {len(outcomes)} requests in " in stdout
    assert json.loads((out / "summary.json").read_text())["summary"]["overall"]["requests"] == len(outcomes)
    assert "Traceback" not in stderr


async def enough(backend: FakeBackend, number: int) -> None:
    while len(backend.queries) < number:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kilobytes", [200, 8], ids=["room for a report", "room for nothing else"])
async def test_a_full_disk_leaves_what_was_measured(tmp_path: Path, kilobytes: int) -> None:
    log, out = log_of(tmp_path / "calls.rlog", 2_000), tmp_path / "out"
    async with running(FakeBackend()) as server:
        process = await start(log, "--target", server.address, "--fast", "--out", out, shell=f"ulimit -f {kilobytes}")
        code, stdout, stderr = await end(process)
    assert code == 1
    outcomes = outcomes_of(out / "target.jsonl")
    assert kilobytes * 2 < len(outcomes) < kilobytes * 4
    assert f"{out / 'target.jsonl'}: cannot be written: File too large" in stderr
    assert "Traceback" not in stderr
    assert f"target: {len(outcomes)} requests in " in stdout


async def test_a_sweep_finds_the_knee_of_a_server_that_answers_one_by_one(tmp_path: Path) -> None:
    """25 ms each: 40 a second. Of 100 a second, the last waits 1.5 s; of 5 a second, none waits for another."""

    class OneByOne(FakeBackend):
        def __init__(self) -> None:
            super().__init__()
            self.turn = asyncio.Lock()

        async def recall(self, *question: Any) -> Any:
            async with self.turn:
                await asyncio.sleep(0.025)
            return await super().recall(*question)

    log, out = log_of(tmp_path / "calls.rlog", 30), tmp_path / "out"
    async with running(OneByOne()) as server:
        options = ("--sweep", "5,100,400", "--sweep-seconds", 1, "--slo", 1_000, "--out", out, "--json")
        code, stdout, stderr = await end(await start(log, "--target", server.address, *options))
    assert code == 0, stderr
    document = json.loads(stdout)
    assert (document["knee"], document["failure"]) == (5.0, "")
    assert [point["is_sustained"] for point in document["points"]] == [True, False]
    assert len(outcomes_of(out / "rate-100.jsonl")) == 100  # the log was read again and again
    assert "<html" in (out / "report.html").read_text()


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two of one catalogue, whose models differ."""
    directory = tmp_path_factory.mktemp("bundles")
    return [write_bundle(directory / f"model-{seed}", seed=seed) for seed in (0, 1)]


def run(*arguments: object, **environment: str) -> Any:
    small = {"RECALL_MAX_ROWS": "64", "RECALL_MAX_PROMPT_TOKENS": "64", "RECALL_MAX_CONTEXT_TOKENS": "640"}
    return CliRunner().invoke(app, ["replay", *map(str, arguments)], env={**small, **environment})


def table_of_histories(path: Path) -> Path:
    lines = [{"history": [f"item-{index:03}"], "next": [f"item-{index + 1:03}"]} for index in range(30)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_bundles_in_this_process(bundles: list[Path], tmp_path: Path) -> None:
    source, one_by_one = table_of_histories(tmp_path / "q.jsonl"), ("--fast", "--concurrency", 1, "--json")
    same = run(source, "--bundle", bundles[0], "--against", bundles[0], *one_by_one, "--out", tmp_path / "same")
    assert same.exit_code == 0, same.output
    overall = json.loads(same.stdout.splitlines()[-1])["comparison"]["overall"]
    assert (overall["pairs"], overall["identical"], overall["max_score_drift"]) == (30, 30, 0.0)
    gate = ("--require", "min_overlap@10=0.95")
    other = run(
        source, "--bundle", bundles[0], "--against", bundles[1], *one_by_one, *gate, "--out", tmp_path / "other"
    )
    assert other.exit_code == 1
    assert "overlap@10 is" in json.loads(other.stdout.splitlines()[-1])["verdicts"][0]["sentence"]


def without_an_item(bundle: Path, directory: Path, gone: str) -> Path:
    """The bundle, its catalogue built without one item."""
    sids, item_ids = small_rows()
    kept = [row for row, item_id in enumerate(item_ids) if item_id != gone]
    shutil.copytree(bundle, directory)
    shutil.rmtree(directory / "catalog")
    save_catalog(build_catalog(LAYOUT, sids[kept], [item_ids[row] for row in kept]), directory / "catalog")
    return directory


def with_one_other_weight(bundle: Path, directory: Path) -> Path:
    shutil.copytree(bundle, directory)
    file = directory / "model" / "model.safetensors"
    weights = load_file(file)
    weights["model.norm.weight"][3] *= 3.0
    save_file(weights, file, metadata={"format": "pt"})
    return directory


def test_a_removed_item_is_named_and_fails_the_gate(bundles: list[Path], tmp_path: Path) -> None:
    source = table_of_histories(tmp_path / "q.jsonl")
    assert run(source, "--bundle", bundles[0], "--fast", "--out", tmp_path / "before").exit_code == 0
    gone = outcomes_of(tmp_path / "before" / "target.jsonl")[0].answer.item_ids[0]
    smaller = without_an_item(bundles[0], tmp_path / "smaller", gone)
    document, report, told = gated(smaller, bundles[0], tmp_path)
    assert document["comparison"]["overall"]["identical"] < 30
    assert gone in report
    assert f"Lost most, and nowhere gained: {gone}" in told


def test_a_changed_weight_drifts_and_fails_the_gate(bundles: list[Path], tmp_path: Path) -> None:
    document, report, told = gated(with_one_other_weight(bundles[0], tmp_path / "other"), bundles[0], tmp_path)
    assert document["comparison"]["overall"]["max_score_drift"] > 1e-3
    assert "score drift" in report
    assert "fails" in told


def gated(bundle: Path, against: Path, tmp_path: Path) -> tuple[dict[str, Any], str, str]:
    """Summary, report and terminal of a replay against another bundle, the gate having failed with a sentence."""
    source = table_of_histories(tmp_path / "q.jsonl")
    gate = ("--require", "min_overlap@10=1", "--require", "max_score_drift=1e-6")
    options = ("--fast", "--concurrency", 1, *gate, "--out", tmp_path / "out")
    result = run(source, "--bundle", bundle, "--against", against, *options)
    document = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert result.exit_code == 1
    assert any(not verdict["passes"] and verdict["sentence"] for verdict in document["verdicts"])
    return document, (tmp_path / "out" / "report.html").read_text(), result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--target or --bundle: give one of them"),
        (("--target", "a:1", "--bundle", "."), "--target or --bundle: give one of them"),
        (("--target", "nowhere"), "'nowhere' is no address and no directory; give host:port"),
        (("--target", "127.0.0.1:1"), "source does not say when its questions arrived; give --rate"),
        (("--target", "127.0.0.1:1", "--fast"), "127.0.0.1:1: cannot be reached"),
        (("--target", "a:1", "--rate", "5", "--fast"), "--rate and --fast contradict each other"),
        (("--target", "a:1", "--fast", "--require", "min_overlop@10=1"), "did you mean min_overlap@K?"),
        (("--target", "a:1", "--sweep", "5,10"), "--sweep: needs --slo"),
        (("--target", "a:1", "--sweep", "5,10", "--slo", "5", "--rate", "5"), "--sweep and --rate contradict"),
        (("--target", "a:1", "--spread", "2"), "--spread: files go side by side, not as recorded"),
        (("--target", "a:1", "--spread", "2", "--fast", "--limit", "3"), "give --sample in place of --limit"),
        (("--target", "a:1", "--warm-up", "soon"), "--warm-up 'soon': give seconds, as in 10, or a share"),
        (("--bundle", "/nowhere", "--fast"), "/nowhere/bundle.toml: no such file"),
    ],
    ids=[
        "nobody",
        "two",
        "no address",
        "no arrivals",
        "nobody there",
        "two timings",
        "threshold",
        "no SLO",
        "sweep and rate",
        "spread as recorded",
        "spread and limit",
        "warm-up",
        "no bundle",
    ],
)
def test_what_is_not_fit_to_replay(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    result = run(table_of_histories(tmp_path / "q.jsonl"), *options, "--out", tmp_path / "out")
    assert result.exit_code == 2
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert message in line
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_warm_up_is_a_share_of_what_is_asked(bundles: list[Path], tmp_path: Path) -> None:
    options = ("--fast", "--limit", 20, "--warm-up", "25%", "--json", "--out", tmp_path / "out")
    result = run(table_of_histories(tmp_path / "q.jsonl"), "--bundle", bundles[0], *options)
    summary = json.loads(result.stdout.splitlines()[-1])["summary"]
    assert (summary["warm_up"], summary["overall"]["requests"]) == (5, 15)


def test_damage_is_told_of_once_and_left_out(bundles: list[Path], tmp_path: Path) -> None:
    source = table_of_histories(tmp_path / "q.jsonl")
    source.write_text("{\n" + source.read_text())
    options = ("--bundle", bundles[0], "--fast", "--out", tmp_path / "out")
    refused = run(source, *options)
    assert "line 1: not JSON" in refused.stderr
    result = run(source, *options[:-1], tmp_path / "again", "--skip-damaged")
    assert result.exit_code == 0
    assert result.stderr.count(f"skipped: {source}, line 1: not JSON") == 1
    assert len(outcomes_of(tmp_path / "again" / "target.jsonl")) == 30
