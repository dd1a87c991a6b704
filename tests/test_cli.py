"""The commands, and two server processes that share a Redis."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner, Result

from recall_service import __version__
from recall_service.cli import app
from recall_service.serving.bundles.bundle import load_bundle
from tests.redis_server import RedisServer, find_servers
from tests.serving.bundles import write_bundle, write_toml

REPOSITORY = Path(__file__).parents[1]
PASSWORD = "swordfish"
ANYWHERE = {"RECALL_PORT": "0", "RECALL_METRICS_PORT": "0", "RECALL_ADMIN_PORT": "0"}


class ServerProcess:
    """`recall-service serve` in a process of its own, on free ports; `said` is its line on stdout, once it serves."""

    said: dict[str, Any]

    def __init__(self, *arguments: str, **environment: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RECALL_")}
        small = ["max_rows=64", "max_prompt_tokens=64", "max_context_tokens=640", "torch_threads=1"]
        settings = [word for setting in small for word in ("--set", setting)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recall_service", "serve", *settings, *arguments],
            cwd=REPOSITORY,
            env={**inherited, **ANYWHERE, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_serving(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.said = json.loads(line)

    def end(self) -> tuple[int, str, str]:
        """Send SIGTERM; the exit code, what else was on stdout, and stderr."""
        self.process.send_signal(signal.SIGTERM)
        stdout, stderr = self.process.communicate(timeout=20)
        return self.process.returncode, stdout, stderr

    def query(self, *history: str, expected_code: int = 0, **options: Any) -> dict[str, Any]:
        """What `recall-service query --json` prints."""
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        result = run("query", "--target", self.said["address"], "--history", ",".join(history), "--json", *words)
        assert result.exit_code == expected_code, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of /metrics."""
        text = urlopen(self.said["metrics_url"]).read().decode()
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return next(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def run(*arguments: str, **environment: str) -> Result:
    """One command in this process."""
    return CliRunner().invoke(app, list(arguments), env=environment)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(next(iter(find_servers().values())), tmp_path_factory.mktemp("redis"), password=PASSWORD)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def servers(directory: Path, redis_server: RedisServer) -> Iterator[list[ServerProcess]]:
    """Two replicas of one bundle, which one is told of by a flag and the other by the environment."""
    shared = {"RECALL_REDIS_URL": redis_server.url, "RECALL_REDIS_TIMEOUT_MS": "200"}
    servers = [
        ServerProcess("--bundle", str(directory), **shared),
        ServerProcess(RECALL_BUNDLES=str(directory), **shared),
    ]
    try:
        for server in servers:
            server.wait_until_serving()
        yield servers
    finally:
        for server in servers:
            server.process.kill()
            server.process.communicate()


@contextmanager
def stopped(server: RedisServer) -> Iterator[None]:
    server.stop()
    yield
    server.start()


@pytest.mark.redis
def test_a_server_says_where_and_what_it_serves(servers: list[ServerProcess], directory: Path) -> None:
    bundle = load_bundle(directory)
    for server in servers:
        assert server.said["bundles"] == {"tiny": [bundle.version, bundle.catalog.version]}
        with grpc.insecure_channel(server.said["address"]) as channel:
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.redis
def test_a_query_is_answered_and_counted(servers: list[ServerProcess]) -> None:
    server, samples = servers[0], ("recall_items_returned_count", "grpc_server_handled_total")
    labels: list[dict[str, str]] = [{}, {"grpc_method": "Recall", "grpc_code": "OK"}]
    before = [server.metric(name, **named) for name, named in zip(samples, labels, strict=True)]
    answer = server.query("item-003", "gone", num_items=5, beam_width=7)
    assert len(answer["items"]) == 5
    assert (answer["beam_width"], answer["unknown_history_items"], answer["bundle"]) == (7, 1, "tiny")
    assert [server.metric(name, **named) - 1 for name, named in zip(samples, labels, strict=True)] == before


@pytest.mark.redis
def test_a_query_for_people(servers: list[ServerProcess]) -> None:
    answer = servers[0].query("item-004", num_items=3)
    result = run(
        "query", "--target", servers[0].said["address"], "--history", "item-004", "--num-items", "3", "--steps"
    )
    assert result.exit_code == 0
    assert all(item["item_id"] in result.stdout for item in answer["items"])
    assert f"{answer['bundle_version']}, catalogue {answer['catalog_version']}" in result.stdout.replace("\n", " ")
    assert "step ranks" in result.stdout


@pytest.mark.redis
def test_a_proven_query_proves_all_it_answers(servers: list[ServerProcess]) -> None:
    options = ["--target", servers[0].said["address"], "--history", "item-006", "--num-items", "9"]
    answer = json.loads(run("query", *options, "--proven", "--json").stdout)
    assert (len(answer["items"]), answer["proven_count"], answer["beam_width"]) == (9, 9, 9)


@pytest.mark.redis
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--history", "item-001", "--bundle", "nobody"], "NOT_FOUND: bundle: 'nobody' is not served here"),
        (["--history", "gone"], "FAILED_PRECONDITION: none of the 1 history items"),
        (["--history", ","], "INVALID_ARGUMENT: history.item_ids"),
        (["--history", "item-001", "--beam-width", "65"], "bundle tiny allows at most 64"),
        (["--history", "item-001", "--num-items", "-1"], "-1"),
    ],
    ids=["bundle", "unknown history", "no history", "beam width", "negative"],
)
def test_a_query_that_gets_no_answer(servers: list[ServerProcess], options: list[str], message: str) -> None:
    result = run("query", "--target", servers[0].said["address"], *options)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith(f"{servers[0].said['address']}: ")
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.redis
def test_replicas_share_what_one_computed(servers: list[ServerProcess]) -> None:
    first, second = servers
    computed = first.query("item-010", "item-011")
    answers = [computed, first.query("item-010", "item-011"), second.query("item-010", "item-011")]
    assert [answer["served_from"] for answer in answers] == ["ENGINE", "LOCAL_CACHE", "SHARED_CACHE"]
    assert second.query("item-010", "item-011")["served_from"] == "LOCAL_CACHE"
    per_call = {"served_from", "rows_forwarded", "rows_skipped", "request_id", "attribution_token"}
    kept = [name for name in computed if name not in per_call and not name.endswith("_seconds")]
    for answer in answers:
        assert [answer[name] for name in kept] == [computed[name] for name in kept]


@pytest.mark.redis
def test_answers_are_the_same_without_redis(servers: list[ServerProcess], redis_server: RedisServer) -> None:
    first, second = servers
    shared = first.query("item-020", "item-021")
    with stopped(redis_server):
        answers = [second.query("item-020", "item-021"), second.query("item-022")]
        again = first.query("item-022")
    assert answers[0]["served_from"] == answers[1]["served_from"] == again["served_from"] == "ENGINE"
    assert answers[0]["items"] == shared["items"]
    assert answers[1]["items"] == again["items"]


@pytest.mark.redis
def test_sigterm_ends_a_server_in_peace(directory: Path, redis_server: RedisServer) -> None:
    """Exit code 0, nothing but the one line on stdout, no traceback and no password in the log."""
    server = ServerProcess("--bundle", str(directory), RECALL_REDIS_URL=redis_server.url)
    server.wait_until_serving()
    with stopped(redis_server):
        assert server.query("item-001")["served_from"] == "ENGINE"
        code, stdout, stderr = server.end()
    assert code == 0
    assert stdout == ""
    assert "Traceback" not in stderr
    assert PASSWORD not in stderr
    assert all(json.loads(line)["level"] in {"info", "warning"} for line in stderr.splitlines())


def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    server = ServerProcess("--bundle", str(tmp_path))
    stdout, stderr = server.process.communicate(timeout=30)
    assert server.process.returncode == 2
    assert stdout == ""
    assert stderr == f"error: {tmp_path}/bundle.toml: no such file; a bundle is a directory that holds one\n"


def test_nobody_at_the_target() -> None:
    result = run("query", "--target", "127.0.0.1:1", "--history", "a", "--timeout", "1")
    assert result.exit_code == 1
    assert result.stderr.startswith("127.0.0.1:1: ")


def test_checking_a_sound_bundle(directory: Path) -> None:
    bundle = load_bundle(directory)
    result = run("bundle", "check", str(directory), "--json")
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert (facts["name"], facts["version"]) == ("tiny", bundle.version)
    assert (facts["items"], facts["sids"], facts["codebook_sizes"]) == (50, 40, [4, 5, 6])
    assert (facts["longest_history_prompt"], facts["max_prompt_tokens"], facts["vocabulary"]) == (19, 254, 280)
    assert f"{directory}: sound" in run("bundle", "check", str(directory)).stdout


def test_checking_a_bundle_that_is_not(tmp_path: Path) -> None:
    directory = write_bundle(tmp_path / "tiny")
    write_toml(directory, prompt={"max_history": 99})
    result = run("bundle", "check", str(directory), "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {directory}/bundle.toml: prompt.max_history: 99 items make 298 tokens")


def test_an_error_is_one_line_that_no_terminal_obeys(tmp_path: Path) -> None:
    (tmp_path / "bundle.toml").write_text('"a\\nb\\u001b[31m" = 1')
    result = run("bundle", "check", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.endswith("a?b?[31m is no known key; remove it or correct its name\n")
    assert result.stderr.count("\n") == 1


def test_settings_are_shown_without_their_secrets(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("max_rows = 77\nport = 1234\n")
    url = f"redis://user:{PASSWORD}@cache:6379/0"
    result = run("config", "--config", str(file), "--set", "port=4321", RECALL_REDIS_URL=url, RECALL_MAX_ROWS="66")
    assert result.exit_code == 0
    assert PASSWORD not in result.output
    shown = json.loads(result.stdout)
    assert shown["redis_url"] == "redis://user:***@cache:6379/0"
    assert (shown["max_rows"], shown["port"]) == (77, 4321)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["config", "--set", "max_rows"], "'max_rows' has no '='"),
        (["config", "--set", "max_rowz=1"], "max_rowz: no such setting; did you mean max_rows?"),
        (["serve", "--set", "max_rows=0"], "max_rows"),
        (["serve", "--config", "/nowhere.toml"], "config file /nowhere.toml"),
    ],
    ids=["no value", "unknown", "out of range", "no config file"],
)
def test_settings_that_are_wrong(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_version() -> None:
    assert run("version").stdout == f"{__version__}\n"
