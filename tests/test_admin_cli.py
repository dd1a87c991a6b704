"""recall-service admin against a server whose catalogue lies in a store."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from item_catalog.updating.store import CatalogStore
from recall_service.serving.bundles.bundle import load_bundle
from recall_service.tokens import make_token
from tests.serving.bundles import write_model
from tests.serving.stores import shop_catalog, write_store_bundle
from tests.test_cli import ServerProcess, run

OLD, NEW = shop_catalog(), shop_catalog(100)
OPERATOR = make_token("operator", "recall+admin")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bundles") / "tiny"
    write_store_bundle(directory, OLD, NEW)
    return directory


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("secrets") / "token"
    file.write_text(OPERATOR.token)
    return file


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[ServerProcess]:
    settings = ("--set", "catalog_watch_seconds=0.05")
    server = ServerProcess("--bundle", str(directory), *settings, RECALL_TOKENS=OPERATOR.entry)
    server.wait_until_serving()
    yield server
    server.end()


@pytest.fixture
def ask(server: ServerProcess, token_file: Path) -> Any:
    def ask(*words: str, token: Path | None = token_file, target: str = server.said["admin_address"]) -> Result:
        access = [] if token is None else ["--token-file", str(token)]
        return run("admin", "--target", target, "--timeout", "20", *access, *words)

    return ask


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def live_version(ask: Any) -> str:
    version: str = document(ask("list", "--json"))["bundles"][0]["catalog_version"]
    return version


def test_what_is_live_is_listed(ask: Any, directory: Path) -> None:
    assert document(ask("list", "--json")) == {
        "serving": True,
        "bundles": [
            {
                "bundle": "tiny",
                "version": load_bundle(directory).version,
                "catalog_version": OLD.version,
                "items": 50,
                "attributes": ["kind"],
                "waiting": 0,
                "running": 0,
                "stuck": False,
            }
        ],
    }
    for_people = ask("list")
    assert for_people.exit_code == 0
    assert "tiny" in for_people.stdout


def test_a_version_is_loaded_activated_and_rolled_back(ask: Any, server: ServerProcess) -> None:
    loaded = document(ask("load", NEW.version, "--json"))
    assert loaded == {"bundle": "tiny", "version": NEW.version, "items": 50, "sids": 40}
    assert live_version(ask) == OLD.version
    activated = document(ask("activate", NEW.version, "--bundle", "tiny", "--json"))
    assert activated == loaded | {"previous_version": OLD.version}
    assert live_version(ask) == NEW.version
    assert server.metric("recall_catalog_info", version=NEW.version) == 1
    assert document(ask("rollback", "--json"))["version"] == OLD.version
    assert server.metric("recall_reloads_total", kind="catalog", result="ok") >= 2


def test_updates_of_a_file(ask: Any, directory: Path, tmp_path: Path) -> None:
    lines = [
        {"item_id": "new", "sid": [3, 4, 5], "attributes": {"kind": "boot"}},
        {"item_id": "item-001", "attributes": {"kind": None}},
        {"item_id": "item-002", "remove": True},
        {"item_id": "gone", "remove": True},
    ]
    file = tmp_path / "updates.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    done = ask("apply", str(file), "--json")
    assert "lines 1 to 4 are applied" in done.stderr
    applied = document(done)
    assert {name: applied[name] for name in ("items", "added", "changed", "removed", "unknown_removals")} == {
        "items": 50,
        "added": 1,
        "changed": 1,
        "removed": 1,
        "unknown_removals": 1,
    }
    assert applied["version"] == live_version(ask) == CatalogStore(directory / "catalog").load().catalog.version


def test_a_bundle_is_reloaded(ask: Any, directory: Path) -> None:
    before = load_bundle(directory).version
    write_model(directory / "model", seed=1)
    reloaded = document(ask("reload", "--json"))
    assert reloaded["previous_version"] == before
    assert reloaded["version"] == load_bundle(directory).version != before
    assert "live" in ask("reload").stdout


@pytest.mark.parametrize(
    ("lines", "code", "message"),
    [
        ("", 2, "updates.jsonl: no updates; give at least one line"),
        ("[]", 2, "line 1: a JSON list; write one object a line"),
        ('{"item_id": "x", "sid": [-1]}', 2, "item x: sid: -1 is no code; give integers from 0"),
        ('{"item_id": "x", "sid": []}', 2, "item x: sid: no codes; give one for each level"),
        ('{"item_id": "x", "attributes": {"kind": [1]}}', 2, "item x: attributes.kind: [1]; give text"),
        ('{"item_id": "x", "attributes": {"kind": 9223372036854775808}}', 2, "give text, an int64"),
        ('{"item_id": "x", "sid": [1, 2]}', 1, "upserts[0].sid: 2 codes; give 3"),
        ('{"item_id": "x", "sid": [1, 2, 3], "attributes": {"kind": 1.5}}', 1, "upserts[0].attributes.kind"),
    ],
)
def test_updates_that_are_wrong(ask: Any, tmp_path: Path, lines: str, code: int, message: str) -> None:
    before = live_version(ask)
    (tmp_path / "updates.jsonl").write_text(lines)
    result = ask("apply", str(tmp_path / "updates.jsonl"))
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert live_version(ask) == before


def test_a_change_that_is_refused_is_one_line(ask: Any) -> None:
    result = ask("activate", "never")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "NOT_FOUND: version: 'never' is not in the store; it has" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_who_may_not_and_nobody_at_all(ask: Any) -> None:
    refused = ask("rollback", token=None)
    assert (refused.exit_code, "UNAUTHENTICATED" in refused.stderr) == (1, True)
    assert ask("list", target="127.0.0.1:1").stderr.startswith("127.0.0.1:1: UNAVAILABLE")
    assert ask("list", target="a b").stderr.startswith("a b: target: 'a b' is no address")


def test_a_server_is_drained(directory: Path, tmp_path: Path) -> None:
    server = ServerProcess("--bundle", str(directory), "--set", "drain_notice_seconds=0")
    server.wait_until_serving()
    result = run("admin", "--target", server.said["admin_address"], "drain", "--json")
    assert document(result)["at_most_seconds"] > 0
    assert server.process.wait(20) == 0
    server.process.communicate()
