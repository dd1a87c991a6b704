"""Questions out of request logs, Parquet and JSON lines, sound and damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.json_format import MessageToJson
from hypothesis import given
from hypothesis import strategies as st

from recall_service.errors import RecallError, ReplayError, RequestLogError
from recall_service.replay.answers import from_log
from recall_service.replay.arrival_order import in_arrival_order
from recall_service.replay.asked import Asked
from recall_service.replay.sources import limited, open_source, sampled, with_arrivals
from recall_service.request_log.parquet import write_parquet
from recall_service.request_log.reader import find_files, read_frames
from recall_service.stubs.recall.v1 import recall_pb2
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedAnswer, LoggedRecall
from tests.replay.questions import make_asked, many
from tests.request_log.recalls import write_file

FILTER = recall_pb2.Filter(
    predicates=[
        {"attribute": "category", "not_in": {"values": [{"text": "schöne shoes"}, {"text": ""}]}},
        {"attribute": "published", "in": {"values": [{"integer": 2**53 + 1}, {"boolean": False}]}},
        {"attribute": "price", "range": {"above": {"number": 0.1}, "at_most": {"number": 1e300}}},
    ]
)


def request(index: int) -> recall_pb2.RecallRequest:
    return recall_pb2.RecallRequest(
        history=recall_pb2.ItemHistory(item_ids=[f"item-{index}", "x"]),
        scene=("feed", "mail")[index % 2],
        num_items=index,
        user_id=f"user-{index}",
        filter=FILTER if index % 2 else None,
        exclude_item_ids=["seen", f"seen-{index}"][: index % 3],
        exclude_history=index % 3 == 1,
        search_mode=recall_pb2.SEARCH_MODE_PROVEN,
        cache_mode=recall_pb2.CACHE_MODE_BYPASS,
        include_steps=True,
    )


def logged(index: int, arrival: float) -> LoggedRecall:
    """The recall with this number; every third one failed, and every fourth one had no deadline."""
    record = LoggedRecall(request=request(index))
    record.arrival_time.FromNanoseconds(1_700_000_000_000_000_000 + int(arrival * 1e9))
    if index % 4:
        record.deadline_seconds = index / 8
    if index % 3 == 0:
        record.status_code = 4
        return record
    record.answer.CopyFrom(
        LoggedAnswer(
            item_ids=["a", "b"],
            scores=[-0.5, -index / 3],
            proven_count=1,
            served_from=recall_pb2.SERVED_FROM_LOCAL_CACHE,
            bundle_version="m1",
            catalog_version="c7",
            completeness=recall_pb2.Completeness(
                state=recall_pb2.COMPLETENESS_STATE_SHORT, short_reason=recall_pb2.SHORT_REASON_BEAM_TOO_NARROW
            ),
        )
    )
    return record


def damage(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Six recalls in three frames, written as they ended: the second one before the first."""
    path = tmp_path / "recalls-00000001.rlog"
    recalls = [logged(1, 0.25), logged(0, 0.0), *(logged(index, index / 2) for index in range(2, 6))]
    write_file(path, [recalls[:2], recalls[2:4], recalls[4:]])
    return path


def test_a_log_is_read_in_the_order_of_arrival(log: Path) -> None:
    asked = list(open_source(log).questions())
    assert [question.request for question in asked] == [request(index) for index in range(6)]
    assert [question.index for question in asked] == [1, 0, 2, 3, 4, 5]  # their places in the log
    assert [question.arrival_seconds for question in asked] == pytest.approx([0, 0.25, 1, 1.5, 2, 2.5], abs=1e-6)
    assert [question.deadline_seconds for question in asked] == [None, 0.125, 0.25, 0.375, None, 0.625]
    assert [question.expected for question in asked] == [
        None if index % 3 == 0 else from_log(logged(index, 0).answer) for index in range(6)
    ]
    answered = asked[1].expected
    assert answered is not None
    assert (answered.served_from, answered.short_reason) == ("LOCAL_CACHE", "BEAM_TOO_NARROW")


def test_a_directory_of_log_files_is_one_source(log: Path) -> None:
    write_file(log.with_name("recalls-00000002.rlog"), [[logged(6, 3.0)]])
    (log.parent / "notes.txt").write_text("not a log")
    asked = list(open_source(log.parent).questions())
    assert [question.index for question in asked] == [1, 0, 2, 3, 4, 5, 6]
    assert asked == list(open_source(log.parent).questions())


def test_the_parquet_of_a_log_asks_the_same(log: Path, tmp_path: Path) -> None:
    table = tmp_path / "log.parquet"
    assert write_parquet(read_frames(find_files(log)), table) == 6
    from_log, from_table = (list(open_source(path).questions()) for path in (log, table))
    assert [question.arrival_seconds for question in from_table] == pytest.approx(
        [question.arrival_seconds for question in from_log], abs=2e-6
    )
    for one, other in zip(from_log, from_table, strict=True):
        assert one.request == other.request
        assert (one.index, one.deadline_seconds, one.expected) == (other.index, other.deadline_seconds, other.expected)


def test_a_damaged_frame_costs_its_own_records_when_asked_to(log: Path) -> None:
    starts = write_file(log, [[logged(index, index)] for index in range(4)])
    damage(log, starts[2] - 1)
    with pytest.raises(RequestLogError, match=rf"{log}, byte {starts[1]:,}: "):
        list(open_source(log).questions())
    told: list[str] = []
    asked = list(open_source(log, told.append).questions())
    assert [question.request.num_items for question in asked] == [0, 2, 3]
    assert [question.index for question in asked] == [0, 1, 2]
    assert len(told) == 1
    assert told[0].startswith(f"{log}, byte {starts[1]:,}: ")


PARQUET = {
    "history": [["a", "b"], ["c"], ["d"]],
    "scene": ["feed", None, "mail"],
    "num_items": [5, 0, 7],
    "beam_width": [9, None, 1],
    "user_id": ["u", "v", "w"],
    "arrival_seconds": [10.0, 10.5, 12.0],
    "next_items": [["z"], None, ["y", "x"]],
    "weather": ["sun", "rain", "snow"],
}


def test_a_table_of_histories(tmp_path: Path) -> None:
    path = tmp_path / "questions.parquet"
    pq.write_table(pa.table(PARQUET), path)
    first, second, third = open_source(path).questions()
    assert first.request == recall_pb2.RecallRequest(
        history=recall_pb2.ItemHistory(item_ids=["a", "b"]), scene="feed", num_items=5, beam_width=9, user_id="u"
    )
    assert second.request == recall_pb2.RecallRequest(history=recall_pb2.ItemHistory(item_ids=["c"]), user_id="v")
    assert [question.next_items for question in (first, second, third)] == [("z",), (), ("y", "x")]
    assert [question.arrival_seconds for question in (first, second, third)] == [0.0, 0.5, 2.0]
    assert {question.expected for question in (first, second, third)} == {None}


def test_integer_item_ids_are_decimal(tmp_path: Path) -> None:
    path = tmp_path / "questions.parquet"
    pq.write_table(pa.table({"history": pa.array([[12, 345]], pa.list_(pa.int64()))}), path)
    (asked,) = open_source(path).questions()
    assert list(asked.request.history.item_ids) == ["12", "345"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"items": [["a"]]}, "has no column history, only items; give item ids as a list of strings"),
        ({"history": ["a"]}, r"row 0: history: 'a'; give a list"),
        ({"history": [[1.5]]}, r"row 0: history: '1.5'; give item ids, text or integers"),
        ({"history": [["a"], ["b"]], "num_items": [1, -1]}, "row 1: num_items: -1; give 0 to 4294967295"),
        ({"history": [["a"]], "search_mode": ["WIDE"]}, "search_mode: 'WIDE'; give one of BEAM, PROVEN"),
        ({"history": [["a"]], "prompt": [[1]]}, "both history and prompt are given"),
        ({"history": [["a"]], "arrival_seconds": [float("inf")]}, "arrival_seconds: inf; give a finite number"),
    ],
    ids=["no history", "no list", "no ids", "negative", "mode", "both", "infinite"],
)
def test_tables_that_ask_nothing(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = tmp_path / "questions.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(ReplayError, match=message) as raised:
        list(open_source(path).questions())
    assert str(path) in str(raised.value)


def test_a_damaged_row_group_costs_its_own_rows_when_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "questions.parquet"
    pq.write_table(pa.table({"history": [[f"item-{row}"] for row in range(6)]}), path, row_group_size=2)
    chunk = pq.read_metadata(path).row_group(1).column(0)
    damage(path, (chunk.dictionary_page_offset or chunk.data_page_offset) + 1)
    with pytest.raises(ReplayError, match=rf"{path}, row group 1 of rows 2 to 3: "):
        list(open_source(path).questions())
    told: list[str] = []
    asked = list(open_source(path, told.append).questions())
    assert [list(question.request.history.item_ids) for question in asked] == [
        ["item-0"],
        ["item-1"],
        ["item-4"],
        ["item-5"],
    ]
    assert len(told) == 1


def write_lines(path: Path, *documents: Any) -> Path:
    path.write_text("".join(f"{json.dumps(document)}\n" for document in documents), encoding="utf-8")
    return path


def test_json_lines_of_rows_and_of_requests(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "questions.jsonl",
        {"history": ["ä", 2], "next": ["c"], "scene": "feed", "deadline_seconds": 0.5},
        {"prompt": [1, 2], "filter": json.loads(MessageToJson(FILTER)), "exclude_item_ids": ["ä", 3]},
        json.loads(MessageToJson(request(3))),
        json.loads(MessageToJson(request(4), preserving_proto_field_name=True)),
    )
    row, prompt, by_json, by_field = open_source(path).questions()
    assert list(row.request.history.item_ids) == ["ä", "2"]
    assert (row.next_items, row.request.scene, row.deadline_seconds) == (("c",), "feed", 0.5)
    assert list(prompt.request.prompt.token_ids) == [1, 2]
    assert (prompt.request.filter, list(prompt.request.exclude_item_ids)) == (FILTER, ["ä", "3"])
    assert [by_json.request, by_field.request] == [request(3), request(4)]
    assert [row.index, prompt.index, by_json.index, by_field.index] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"history": ["a"', "line 2: not JSON: "),
        ("\ufeff\udcff", "line 2: not JSON: "),
        ("[1]", r"line 2: '\[1\]' is no object"),
        ('{"history": ["a"], "histroy": 1}', "line 2: histroy: no such field; fields are history, "),
        ('{"scene": "feed"}', "line 2: neither history nor prompt is given; give one of them"),
        ('{"history": {"itemIdz": []}}', "line 2: .*itemIdz"),
        ('{"history": [true]}', "line 2: history: 'True'; give item ids"),
        ('{"history": ["a"], "include_steps": 1}', "line 2: include_steps: 1; give true or false"),
        ('{"history": ["a"], "exclude_history": "no"}', "line 2: exclude_history: 'no'; give true or false"),
        ('{"history": ["a"], "exclude_item_ids": "b"}', "line 2: exclude_item_ids: 'b'; give a list"),
        ('{"history": ["a"], "filter": 1}', "line 2: filter: '1'; give a filter in protobuf's JSON"),
        ('{"history": ["a"], "filter": "price<3"}', "line 2: filter: .*; give a filter in protobuf's JSON"),
        ('{"history": ["a"], "filter": {"predicate": []}}', "line 2: filter: .*predicate.*; give a filter in"),
    ],
    ids=[
        *("cut off", "not UTF-8", "no object", "unknown", "no context", "protobuf", "truth", "steps"),
        *("no truth", "one excluded", "no filter", "no filter's text", "another's filter"),
    ],
)
def test_a_line_that_is_wrong(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(
        f'{{"history": ["a"]}}\n{line}\n\n{{"history": ["b"]}}\n', encoding="utf-8", errors="surrogateescape"
    )
    with pytest.raises(ReplayError, match=message) as raised:
        list(open_source(path).questions())
    assert str(raised.value).startswith(f"{path}, line 2: ")
    assert str(raised.value).endswith("; correct the line, or skip damaged ones")
    told: list[str] = []
    assert [list(asked.request.history.item_ids) for asked in open_source(path, told.append).questions()] == [
        ["a"],
        ["b"],
    ]
    assert len(told) == 1


def _empty_directory(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path, "no such file or directory"),
        (_empty_directory, "holds no request log, no .parquet and no .jsonl file"),
        (lambda path: path.write_bytes(b"PK\x03\x04 something") and path, "byte 0: is no request log"),
        (
            lambda path: path.with_suffix(".parquet").write_bytes(b"PAR2") and path.with_suffix(".parquet"),
            "cannot be read as Parquet",
        ),
    ],
    ids=["nowhere", "empty directory", "foreign file", "no parquet"],
)
def test_nothing_to_read(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(RecallError, match=message):
        list(open_source(make(tmp_path / "source")).questions())


@given(st.permutations(range(40)), st.integers(1, 50))
def test_questions_that_are_out_of_order_by_less_than_the_window_are_sorted(places: list[int], window: int) -> None:
    """Shuffled within blocks that the window holds."""
    block = max(1, window // 2)
    arrivals = sorted(range(40), key=lambda arrival: (arrival // block, places[arrival]))
    asked = [make_asked(index, arrival_seconds=arrival) for index, arrival in enumerate(arrivals)]
    ordered = list(in_arrival_order(asked, window))
    assert [question.arrival_seconds for question in ordered] == list(range(40))
    assert sorted(question.index for question in ordered) == list(range(40))


@given(st.lists(st.integers(0, 5)))
def test_equal_arrivals_keep_their_order(arrivals: list[int]) -> None:
    asked = [make_asked(index, arrival_seconds=arrival) for index, arrival in enumerate(arrivals)]
    keys = [(question.arrival_seconds, question.index) for question in in_arrival_order(asked)]
    assert keys == sorted(keys)


def test_a_sample_is_a_random_share_that_repeats() -> None:
    def sample(seed: int, share: float = 0.2) -> list[Asked]:
        return list(sampled(many(2_000), share, seed))

    assert len(sample(1)) == pytest.approx(400, abs=80)
    assert [asked.index for asked in sample(1)] == [asked.index for asked in sample(1)]
    assert sample(1) != sample(2)
    assert len(sample(1, 1.0)) == 2_000
    assert [asked.index for asked in limited(many(5), 2)] == [0, 1]
    assert len(list(limited(many(5), None))) == 5


def test_without_arrival_times_there_is_no_original_timing() -> None:
    with pytest.raises(ReplayError, match="give --rate, --poisson or --fast"):
        with_arrivals(many(1_500, arrival_seconds=0.0))
    assert len(list(with_arrivals(many(1_500)))) == 1_500
    assert len(list(with_arrivals(many(1)))) == 1
