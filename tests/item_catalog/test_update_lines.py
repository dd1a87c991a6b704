"""Files of updates become batches; what is wrong in them is named by its line."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from item_catalog.errors import CatalogError
from item_catalog.updating import update_lines
from item_catalog.updating.update_lines import read_updates
from item_catalog.updating.updates import ItemUpdates, ItemUpsert, combined


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "updates.jsonl"


def test_lines_become_a_batch(path: Path):
    path.write_text(
        '{"item_id": "17", "sid": [3, 1], "attributes": {"price": 9.5, "brand": null}}\n'
        "\n"
        '{"item_id": 18, "remove": true}\n{"item_id": "19", "remove": false, "sid": null}'
    )
    (batch,) = read_updates(path)
    assert batch.updates == ItemUpdates(
        (ItemUpsert("17", (3, 1), {"price": 9.5, "brand": None}), ItemUpsert("19")), ("18",)
    )
    assert (batch.lines, batch.last_line) == ({"17": 1, "18": 3, "19": 4}, 4)


def test_batches_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(update_lines, "BATCH_LINES", 3)
    path.write_text("".join(f'{{"item_id": "{number}"}}\n' for number in range(8)))
    assert [(len(batch.updates), batch.last_line) for batch in read_updates(path)] == [(3, 3), (3, 6), (2, 8)]


def test_an_item_may_stand_in_several_lines_and_goes_and_comes_back_in_others(path: Path):
    path.write_text(
        '{"item_id": "1", "sid": [1], "attributes": {"a": 1, "b": 1}}\n{"item_id": "1", "attributes": {"b": 2}}\n'
        '{"item_id": "1", "remove": true}\n{"item_id": "1", "sid": [2]}\n'
    )
    assert [batch.updates for batch in read_updates(path)] == [
        ItemUpdates((ItemUpsert("1", (1,), {"a": 1, "b": 2}),)),
        ItemUpdates(removals=("1",)),
        ItemUpdates((ItemUpsert("1", (2,)),)),
    ]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.dictionaries(st.sampled_from("xy"), st.none()))))
def test_batches_do_what_the_lines_do_one_after_another(drawn: list[tuple[str, dict | None]], path: Path):
    lines = [
        {"item_id": id_, "remove": True} if values is None else {"item_id": id_, "sid": [0], "attributes": values}
        for id_, values in drawn
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    one_by_one = [
        ItemUpdates(removals=(id_,)) if values is None else ItemUpdates((ItemUpsert(id_, (0,), values),))
        for id_, values in drawn
    ]
    together = combined((batch.updates for batch in read_updates(path)), "xy")
    expected = combined(one_by_one, "xy")
    assert {upsert.item_id: upsert for upsert in together.upserts} == {one.item_id: one for one in expected.upserts}
    assert sorted(together.removals) == sorted(expected.removals)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("{", "malformed JSON: .*; write one object a line", id="JSON"),
        pytest.param("\ud800", "malformed JSON: .*; write one object a line", id="UTF-8"),
        pytest.param("[" * 10_000, "malformed JSON: .*; write one object a line", id="deep"),
        pytest.param("3", "a JSON int; write one object a line", id="number"),
        pytest.param(
            '{"item_id": "a", "price": 3}', "price: no field of an update; give item_id, sid, attr", id="field"
        ),
        pytest.param("{}", "item_id: null; give text or an integer", id="no id"),
        pytest.param('{"item_id": true}', "item_id: true; give text or an integer", id="boolean id"),
        pytest.param('{"item_id": "a", "sid": "1 2"}', 'sid: "1 2"; give a list of codes, or leave it out', id="sid"),
        pytest.param('{"item_id": "a", "attributes": 3}', "attributes: 3; give an object of values", id="attributes"),
        pytest.param('{"item_id": "a", "remove": 1}', "remove: 1; give true, or leave it out", id="remove"),
        pytest.param('{"item_id": "a", "remove": true, "sid": [1]}', "remove: beside sid or attributes", id="both"),
        pytest.param(" " * 2**20 + "{}", "longer than 1,048,576 bytes; write one item", id="long"),
    ],
)
def test_what_is_wrong_is_named(line: str, message: str, path: Path):
    path.write_bytes(b'{"item_id": "1"}\n' + line.encode(errors="surrogatepass"))
    with pytest.raises(CatalogError, match=rf"updates\.jsonl: line 2: {message}"):
        list(read_updates(path))


def test_no_file(path: Path):
    with pytest.raises(CatalogError, match=r"updates\.jsonl: No such file or directory; give a file that can be read"):
        list(read_updates(path))
