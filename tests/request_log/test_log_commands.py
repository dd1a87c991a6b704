"""recall-service log: for people, and for machines."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from recall_service.cli import app
from recall_service.errors import RequestLogError
from recall_service.replay.parquet_source import read_parquet
from recall_service.request_log import parquet as parquet_module
from recall_service.request_log.parquet import SCHEMA, write_parquet
from recall_service.request_log.reader import read_frames
from recall_service.request_log.statistics import MAX_NAMES, OTHER, Latencies, LogStatistics
from recall_service.stubs.recall.v1 import recall_pb2
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall
from tests.request_log.recalls import make_record, make_records, make_request, write_file


def some_records() -> list[LoggedRecall]:
    """Three answers, a refusal, and a question by prompt."""
    prompt = recall_pb2.RecallRequest(request_id="r-4", prompt=recall_pb2.TokenPrompt(token_ids=[7, 8]), num_items=3)
    return [
        *make_records(3),
        make_record(3, code=8, reason="OVERLOADED"),
        make_record(4, prompt),
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    directory = tmp_path / "log"
    directory.mkdir()
    records = some_records()
    write_file(directory / "recalls-00000001.rlog", [records[:2]])
    write_file(directory / "recalls-00000002.rlog", [records[2:4], records[4:]])
    return directory


def run(*arguments: object, expected_code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["log", *map(str, arguments)])
    assert result.exit_code == expected_code, result.output
    return result


def test_one_line_for_each_record(log: Path) -> None:
    lines = run("cat", log).stdout.splitlines()
    first = "2025-10-09T08:53:20.123456Z  OK  1.00 ms  feed  r-0  2 in, 2 out, LOCAL_CACHE, m1/c7"
    assert [line.split("  ")[4] for line in lines] == [f"r-{number}" for number in range(5)]
    assert lines[0] == first
    assert lines[3].endswith("RESOURCE_EXHAUSTED  4.00 ms  feed  r-3  2 in, OVERLOADED")
    assert run("cat", log, "--limit", 2).stdout.splitlines() == lines[:2]


def test_a_record_is_one_line_whatever_the_caller_put_into_it(tmp_path: Path) -> None:
    request = make_request(request_id="a\nb\x1b[31m", scene="\r")
    write_file(tmp_path / "log", [[make_record(0, request)]])
    (line,) = run("cat", tmp_path / "log").stdout.splitlines()
    assert "  ?  a?b?[31m  " in line


def test_json_lines_hold_all_that_was_logged(log: Path) -> None:
    documents = [json.loads(line) for line in run("cat", log, "--json").stdout.splitlines()]
    assert documents[0]["request"]["history"] == {"item_ids": ["item-0", "item-b"]}
    assert documents[0]["answer"]["scores"] == [-0.5, -1.25]
    assert documents[3]["status_code"] == 8


def test_statistics_for_machines(log: Path) -> None:
    document = json.loads(run("stats", log, "--json").stdout)
    assert document == {
        "records": 5,
        "first_arrival": "2025-10-09T08:53:20.123+00:00",
        "last_arrival": "2025-10-09T08:53:20.163+00:00",
        "span_seconds": 0.04,
        "records_per_second": 125.0,
        "by_scene": {"feed": 4},
        "by_code": {"OK": 4, "RESOURCE_EXHAUSTED": 1},
        "by_error_reason": {"OVERLOADED": 1},
        "by_served_from": {"LOCAL_CACHE": 4},
        "by_bundle_version": {"m1": 4},
        "by_catalog_version": {"c7": 4},
        "latency_seconds": pytest.approx(
            {"p50": 0.002, "p90": 0.005, "p99": 0.005, "p999": 0.005, "max": 0.005}, rel=0.01
        ),
    }


def test_statistics_for_people(log: Path) -> None:
    lines = run("stats", log).stdout.splitlines()
    assert "             records  5" in lines
    assert "             by code  4            OK" in lines


def test_statistics_of_an_empty_log(tmp_path: Path) -> None:
    write_file(tmp_path / "log", [])
    document = json.loads(run("stats", tmp_path / "log", "--json").stdout)
    assert (document["records"], document["first_arrival"], document["latency_seconds"]) == (0, None, {})


def test_scenes_without_end_do_not_fill_the_memory() -> None:
    statistics = LogStatistics()
    for number in range(MAX_NAMES + 50):
        statistics.add(LoggedRecall(request=recall_pb2.RecallRequest(scene=f"scene-{number}")))
    scenes = statistics.document()["by_scene"]
    assert len(scenes) == MAX_NAMES + 1
    assert scenes[OTHER] == 50


def test_percentiles_are_those_of_nearest_rank_to_one_per_cent() -> None:
    latencies = Latencies()
    assert latencies.percentiles() == {}
    for milliseconds in range(1, 1_001):
        latencies.add(milliseconds / 1_000)
    for name, exact in {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}.items():
        assert exact <= latencies.percentiles()[name] <= exact * 1.01


def test_damage_is_named_and_skipped_when_asked_to(log: Path, tmp_path: Path) -> None:
    path = log / "recalls-00000001.rlog"
    path.write_bytes(path.read_bytes()[:-1])
    for command in (["cat", log], ["stats", log], ["to-parquet", log, tmp_path / "out.parquet"]):
        refused = run(*command, expected_code=2)
        assert "error: " in refused.stderr
        assert "recalls-00000001.rlog, byte 16: the file ends 1 bytes before" in refused.stderr
        allowed = run(*command, "--skip-damaged")
        assert "skipped: " in allowed.stderr
        assert "recalls-00000001.rlog, byte 16" in allowed.stderr
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 3
    assert json.loads(run("stats", log, "--json", "--skip-damaged").stdout)["records"] == 3


def test_no_half_table_is_left(log: Path, tmp_path: Path) -> None:
    path = log / "recalls-00000002.rlog"
    path.write_bytes(path.read_bytes()[:-1])
    out = tmp_path / "out.parquet"
    out.write_text("what was there")
    run("to-parquet", log, out, expected_code=2)
    assert out.read_text() == "what was there"
    assert {entry.name for entry in tmp_path.iterdir()} == {"log", "out.parquet"}


def test_a_table_that_cannot_be_written(log: Path, tmp_path: Path) -> None:
    frames = read_frames(sorted(log.iterdir()))
    with pytest.raises(RequestLogError, match=r"no/table.parquet: cannot be written: .*; give a path with room"):
        write_parquet(frames, tmp_path / "no" / "table.parquet")


@pytest.mark.parametrize("limits", [{}, {"GROUP_ROWS": 2}, {"GROUP_BYTES": 1}], ids=["one", "by rows", "by bytes"])
def test_the_table_has_a_row_for_each_record(
    limits: dict[str, int], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(parquet_module, name, value)
    out = tmp_path / "out.parquet"
    assert run("to-parquet", log, out).stdout == f"{out}: 5 rows\n"
    table = pq.read_table(out)
    assert pq.ParquetFile(out).num_row_groups == (3 if limits else 1)
    assert table.schema == SCHEMA
    rows = table.to_pylist()
    answered, refused, by_prompt = rows[0], rows[3], rows[4]
    assert answered["arrival_time"].isoformat() == "2025-10-09T08:53:20.123456+00:00"
    assert (answered["history"], answered["prompt"]) == (["item-0", "item-b"], None)
    assert (answered["item_ids"], answered["scores"]) == (["next-0", "next-b"], [-0.5, -1.25])
    assert (answered["code"], answered["served_from"], answered["short_reason"]) == ("OK", "LOCAL_CACHE", "")
    assert (refused["code"], refused["error_reason"]) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
    assert (refused["item_ids"], refused["bundle_version"], refused["deadline_seconds"]) == (None, None, None)
    assert (by_prompt["history"], by_prompt["prompt"]) == (None, [7, 8])


def test_replay_reads_the_table(log: Path, tmp_path: Path) -> None:
    run("to-parquet", log, tmp_path / "out.parquet")
    asked = list(read_parquet(tmp_path / "out.parquet", 0, None))
    records = some_records()
    assert [question.request for question in asked] == [record.request for record in records]
    assert [question.expected is not None for question in asked] == [True, True, True, False, True]


def test_the_table_of_a_long_log_takes_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_module, "GROUP_ROWS", 500)
    peaks = []
    for num_frames in (10, 100):
        write_file(tmp_path / "log", [make_records(100)] * num_frames)
        pool = pa.system_memory_pool()
        pa.set_memory_pool(pool)
        before = pool.max_memory()
        write_parquet(read_frames([tmp_path / "log"]), tmp_path / "out.parquet")
        peaks.append(pool.max_memory() - before)
    assert peaks[1] == 0  # the pool's maximum was reached by the short log
