"""Stores from the command line: what changes them, what tells of them, and errors of one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from item_catalog.cli.app import app
from item_catalog.updating import update_lines
from item_catalog.updating.store import CatalogStore

ITEMS = "item_id,sid,price\n7,0 1,1.5\n8,0 1,\n9,2 0,3\n"
UPDATES = """{"item_id": "7", "attributes": {"price": 2}}
{"item_id": "10", "sid": [3, 3]}
{"item_id": "9", "remove": true}
{"item_id": "99", "remove": true}
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def facts(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "items.csv"
    path.write_text(ITEMS)
    return path


@pytest.fixture
def updates(tmp_path: Path) -> Path:
    path = tmp_path / "updates.jsonl"
    path.write_text(UPDATES)
    return path


@pytest.fixture
def store(items: Path, tmp_path: Path) -> Path:
    path = tmp_path / "store"
    assert run("publish", items, path, "--codebook-sizes", "4,4", "--attribute", "price:number").exit_code == 0
    return path


def test_a_file_is_built_and_published(store: Path):
    catalog = CatalogStore(store).load().catalog
    assert (catalog.num_items, catalog.layout.codebook_sizes, list(catalog.attributes)) == (3, (4, 4), ["price"])


def test_a_built_catalogue_is_published(items: Path, store: Path, tmp_path: Path):
    built = facts("build", items, tmp_path / "built", "--codebook-sizes", "4,4")
    assert facts("publish", tmp_path / "built", store) == {"version": built["version"], "items": 3}
    assert CatalogStore(store).head().base == built["version"]


def test_a_file_takes_the_codebooks_of_the_current_version(items: Path, store: Path):
    facts("publish", items, store)
    assert CatalogStore(store).load().catalog.layout.codebook_sizes == (4, 4)


def test_apply_changes_items(store: Path, updates: Path):
    done = facts("apply", store, updates)
    catalog = CatalogStore(store).load().catalog
    counts = {"items": 3, "added": 1, "changed": 1, "removed": 1, "unknown_removals": 1}
    assert done == {"version": catalog.version} | counts
    assert (catalog.find(["7", "8", "9", "10"]) >= 0).tolist() == [True, True, False, True]


def test_apply_counts_what_comes_and_goes(store: Path, updates: Path):
    updates.write_text(
        '{"item_id": "10", "sid": [3, 3]}\n{"item_id": "10", "remove": true}\n{"item_id": "10", "remove": true}\n'
    )
    done = facts("apply", store, updates)
    assert (done["added"], done["changed"], done["removed"], done["unknown_removals"]) == (1, 0, 1, 1)


def test_a_store_and_its_versions_are_inspected_and_verified(items: Path, store: Path, updates: Path):
    first = CatalogStore(store).head().base
    updated = facts("apply", store, updates)["version"]
    facts("publish", items, store)  # without the attribute
    current = CatalogStore(store).head().base
    places = {store: current, f"{store}@{current}": current, f"{store}@{first}": updated}
    for place, version in places.items():
        assert facts("inspect", place)["version"] == version
        assert run("verify", place).stdout == f"{place}: sound, version {version}\n"
    array = store / "versions" / first / "attribute.price.values.npy"
    array.write_bytes(array.read_bytes()[:-1] + b"\x01")
    assert run("verify", store).exit_code == 0
    result = run("verify", f"{store}@{first}")
    assert (result.exit_code, "attribute.price.values.npy: its checksum is wrong" in result.stderr) == (2, True)


def test_apply_goes_batch_by_batch_and_says_what_is_done(store: Path, updates: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(update_lines, "BATCH_LINES", 2)
    updates.write_text(UPDATES + '{"item_id": "11", "sid": [0, 4]}\n')
    result = run("apply", store, updates)
    assert result.exit_code == 2
    assert "updates.jsonl: line 5: sid[1]: 4; codes there are 0 to 3; lines 1 to 4 are applied" in result.stderr
    assert CatalogStore(store).load().catalog.num_items == 3


def test_versions_come_and_go(items: Path, store: Path, updates: Path):
    first = CatalogStore(store).head().base
    after_updates = facts("apply", store, updates)["version"]
    second = facts("publish", items, store, "--no-activate")["version"]
    assert facts("activate", store, second) == {"version": second}
    listed = facts("versions", store)
    assert [(entry["version"], entry["is_current"]) for entry in listed] == [(first, False), (second, True)]
    shown = run("versions", store).stdout
    assert first in shown
    assert "current" in shown
    assert facts("rollback", store) == {"version": first}
    assert facts("compact", store) == {"version": after_updates, "items": 3}
    assert facts("prune", store, "--keep", 0) == {"removed": sorted([first, second])}
    assert [entry["version"] for entry in facts("versions", store)] == [after_updates]
    assert run("prune", store).stdout == f"{store}: removed nothing\n"


def test_people_are_told(store: Path, updates: Path):
    result = run("apply", store, updates)
    assert ", 3 items, 1 added, 1 changed, 1 removed, 1 unknown removals" in result.stdout


def test_diff_of_a_store_and_what_it_was(store: Path, updates: Path, tmp_path: Path):
    (tmp_path / "more.jsonl").write_text('{"item_id": "8", "sid": [0, 2], "attributes": {"price": 4}}')
    base = CatalogStore(store).head().base
    run("apply", store, updates)
    run("apply", store, tmp_path / "more.jsonl")
    before = store / "versions" / base
    found = facts("diff", before, store, "--examples", 5)
    assert found["added"] == {"count": 1, "examples": ["10"]}
    assert found["removed"] == {"count": 1, "examples": ["9"]}
    assert found["moved"] == {"count": 1, "examples": ["8"]}
    assert [level["count"] for level in found["moved_by_level"]] == [0, 1]
    assert found["attributes_changed"] == {"price": {"count": 2, "examples": ["7", "8"]}}
    assert facts("diff", before, f"{store}@{base}")["added"] == {"count": 1}
    text = run("diff", before, store, "--examples", 1).stdout
    assert "moved, from level 1 on" in text
    assert "3 items before, 3 afterwards" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["apply", "absent", "{updates}"], "absent/CURRENT.json: No such file or directory", id="no store"),
        pytest.param(["apply", "{store}", "absent"], "absent: No such file or directory; give a file", id="no updates"),
        pytest.param(["apply", "{store}", "{bad}"], "line 1: item_id: '\\ud800'; give 1 to 256 bytes", id="id"),
        pytest.param(["apply", "{store}", "{all}"], "removals: they are all 3 items there are", id="all"),
        pytest.param(["rollback", "{store}"], "no version was current before", id="nothing before"),
        pytest.param(["activate", "{store}", "../.."], "version: '../..'; give the 32 hexadecimal", id="path"),
        pytest.param(["publish", "absent.csv", "{store}"], "No such file or directory; give a file", id="no source"),
        pytest.param(["publish", "{items}", "new", "--no-activate"], "new: no store yet", id="first version"),
        pytest.param(
            ["publish", "{store}/versions/{base}", "{store}", "--codebook-sizes", "4"], "is built", id="built"
        ),
        pytest.param(["diff", "{store}", "absent"], "give the directory of a built catalogue", id="nothing to compare"),
        pytest.param(["diff", "{store}", "{store}@12"], "version: '12'; give the 32", id="version"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    message: str,
    store: Path,
    items: Path,
    updates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"item_id": "\\ud800", "sid": [0, 0]}')
    (tmp_path / "all.jsonl").write_text("".join(f'{{"item_id": "{id_}", "remove": true}}\n' for id_ in (7, 8, 9)))
    places = {
        "store": store,
        "items": items,
        "updates": updates,
        "bad": "bad.jsonl",
        "all": "all.jsonl",
        "base": CatalogStore(store).head().base,
    }
    result = run(*(argument.format(**places) for argument in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
