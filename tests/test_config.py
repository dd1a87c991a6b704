import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from recall_service.config import Settings, load_settings
from recall_service.errors import SettingsError


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("RECALL_"):
            monkeypatch.delenv(name)


WriteFile = Callable[[str], Path]


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    def write(text: str) -> Path:
        path = tmp_path / "recall.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_needs_nothing_and_listens_on_loopback() -> None:
    settings = load_settings()
    assert (settings.host, settings.metrics_host) == ("127.0.0.1", "127.0.0.1")
    assert settings.redis_url is None


def test_flags_win_over_the_file_and_the_file_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, write_file: WriteFile
) -> None:
    for name in ("RECALL_PORT", "RECALL_METRICS_PORT", "RECALL_MAX_ROWS"):
        monkeypatch.setenv(name, "1")
    path = write_file("port = 2\nmetrics_port = 2")
    settings = load_settings(path, {"port": 3, "max_batch_requests": None})
    assert (settings.port, settings.metrics_port, settings.max_rows) == (3, 2, 1)
    assert settings.max_batch_requests == Settings.model_fields["max_batch_requests"].default


def test_the_environment_names_the_file(monkeypatch: pytest.MonkeyPatch, write_file: WriteFile) -> None:
    monkeypatch.setenv("RECALL_CONFIG", str(write_file('scenes = ["feed", "mail"]\nbundles = ["a", "b"]')))
    settings = load_settings()
    assert settings.scenes == ("feed", "mail")
    assert settings.bundles == (Path("a"), Path("b"))


@pytest.mark.parametrize(("text", "scenes"), [("feed", ("feed",)), ("feed, mail,", ("feed", "mail"))])
def test_lists_in_the_environment_are_comma_separated(
    text: str, scenes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALL_SCENES", text)
    assert load_settings().scenes == scenes


def test_an_empty_variable_is_not_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECALL_REDIS_URL", "")
    monkeypatch.setenv("RECALL_CONFIG", "")
    assert load_settings().redis_url is None


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"port": 70_000}, r"port from flag --port: 70000; .*less than or equal to 65535"),
        ({"port": "http"}, r"port from flag --port: 'http'; .*integer"),
        ({"log_level": "loud"}, r"log_level .*'loud'; .*'debug', 'info', 'warning' or 'error'"),
        ({"cache_ttl_jitter": 1.0}, r"cache_ttl_jitter .*1\.0; .*less than 1"),
        ({"cache_ttl_seconds": 0}, r"cache_ttl_seconds .*0; .*greater than 0"),
        ({"cache_ttl_seconds": float("inf")}, r"cache_ttl_seconds .*inf; .*finite"),
        ({"redis_timeout_ms": float("nan")}, r"redis_timeout_ms .*nan; "),
        ({"max_context_tokens": 100}, r"max_context_tokens .*100; .*max_prompt_tokens = 2048; give at least that"),
        ({"max_prompt_tokens": 10**6}, r"max_context_tokens from its default: .*max_prompt_tokens = 1000000"),
        ({"prot": 1}, r"flag prot: no such setting; did you mean port\?"),
        ({"qqq": 1}, r"flag qqq: no such setting; remove it"),
    ],
    ids=str,
)
def test_a_bad_value_is_named_with_its_origin_and_the_remedy(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings(flags=flags)


TOKENS = ("ranker:recall:" + "ab" * 32, "mailer:recall:" + "cd" * 32)


def test_a_limit_of_a_client_that_cannot_be_is_refused() -> None:
    with pytest.raises(
        SettingsError,
        match=r"client_limits .*'rankre' is no name of a token; those are ranker, mailer; \* is all others",
    ) as caught:
        load_settings(flags={"tokens": TOKENS, "client_limits": "ranker=1,rankre=2"})
    assert "abab" not in str(caught.value)


@pytest.mark.parametrize(
    "flags",
    [{"tokens": TOKENS, "client_limits": "ranker=1,*=2"}, {"client_limits": "a common name=1"}],
    ids=["a token's and all others'", "a certificate's"],
)
def test_a_limit_of_a_client_that_can_be_is_taken(flags: dict[str, Any]) -> None:
    assert 1 in load_settings(flags=flags).client_limits.values()


def test_everything_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch, write_file: WriteFile) -> None:
    monkeypatch.setenv("RECALL_PORT", "x")
    monkeypatch.setenv("RECALL_REDIS_ULR", "redis://:hunter2@host")
    path = write_file("max_rows = 0\ndrain = 1")
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    message = str(caught.value)
    assert "port from RECALL_PORT: 'x'" in message
    assert f"max_rows from {path}: 0" in message
    assert f"drain in {path}: no such setting; did you mean drain_seconds?" in message
    assert "environment variable RECALL_REDIS_ULR: no such setting; did you mean RECALL_REDIS_URL?" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("text", ["port 1", "port = 1\nport = 2", 'redis_url = "hunter2'], ids=str)
def test_a_file_that_is_not_toml_is_refused(text: str, write_file: WriteFile) -> None:
    path = write_file(text)
    with pytest.raises(
        SettingsError, match=r"recall\.toml: not TOML: .+ \(at .*\); write settings as name = value"
    ) as caught:
        load_settings(path)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["port = " + "[" * 100_000, "port = " + "9" * 5_000], ids=["too deep", "too long"])
def test_a_file_that_python_cannot_hold_is_refused(text: str, write_file: WriteFile) -> None:
    with pytest.raises(SettingsError, match=r"recall\.toml: not TOML: .+; write settings as name = value"):
        load_settings(write_file(text))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml: cannot be read: No such file"):
        load_settings(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://host", "redis://host"),
        ("redis://:hunter2@host:6380/1", "redis://:***@host:6380/1"),
        ("rediss://user:hunter2@host/0", "rediss://user:***@host/0"),
        ("redis://hunter2@host", "redis://***@host"),
        ("redis://:hunter2%2F%40@[::1]:6379", "redis://:***@[::1]:6379"),
        ("rediss://host?ssl_certfile=c.pem&ssl_password=hunter2", "rediss://host?***"),
        (
            "redis+sentinel://user:hunter2@one:26379,[::1]/answers/1?sentinel_password=hunter2",
            "redis+sentinel://user:***@one:26379,[::1]/answers/1?***",
        ),
        ("rediss+cluster://:hunter2@one,two:7000", "rediss+cluster://:***@one,two:7000"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("unix://user:hunter2@/run/redis.sock", "unix://user:***@/run/redis.sock"),
    ],
)
def test_a_password_is_never_shown(url: str, masked: str) -> None:
    settings = load_settings(flags={"redis_url": url})
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == url
    assert settings.masked()["redis_url"] == masked
    assert "hunter2" not in repr(settings) + str(settings) + str(settings.masked()) + settings.model_dump_json()


@pytest.mark.parametrize(
    "url",
    [
        "http://:hunter2@host",
        "hunter2",
        "redis://",
        "redis://:hunter2",
        "redis://:hun/ter2@host",
        "redis://:hun#ter2@host",
        "redis://:hun?ter2@host",
        "redis://:hunter2@host:port",
        "redis://:hunter2@host/first",
        "redis://:hunter2@host?socket_timeout=60",
        "redis://:hunter2@one,two",
        "redis+sentinel://:hunter2@one,two",
        "redis+cluster://:hunter2@one/1",
        "unix://",
    ],
)
def test_a_url_that_redis_would_read_otherwise_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(SettingsError, match=r"redis_url from flag --redis-url: give redis://") as caught:
        load_settings(flags={"redis_url": url})
    assert "ter2" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_masked_settings_are_json_values() -> None:
    masked = load_settings(flags={"bundles": "a,b"}).masked()
    assert list(masked) == list(Settings.model_fields)
    assert masked["bundles"] == ["a", "b"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"request_log_user_ids": "hash"}, "request_log_hash_key from its default: .*there is no key; give 16 to 64"),
        ({"request_log_hash_key": "swordfish"}, "request_log_hash_key from flag .*: a key of 9 bytes; give 16 to 64"),
        ({"request_log_hash_key": "swordfish" * 8}, "request_log_hash_key from flag .*: a key of 72 bytes"),
        ({"request_log_user_ids": "rot13"}, "request_log_user_ids .*'rot13'; .*'keep', 'drop' or 'hash'"),
        ({"request_log_sample": 1.5}, r"request_log_sample .*1\.5; .*less than or equal to 1"),
        ({"request_log_max_files": 0}, "request_log_max_files .*0; "),
    ],
    ids=["no key", "a short key", "a long key", "another rule", "a share beyond all", "no file"],
)
def test_a_request_log_that_cannot_be(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        load_settings(flags=flags)
    assert "swordfish" not in str(caught.value)


def test_the_key_of_the_request_log_is_never_shown() -> None:
    settings = load_settings(flags={"request_log_user_ids": "hash", "request_log_hash_key": "swordfish" * 7})
    assert settings.masked()["request_log_hash_key"] == "**********"
    assert "swordfish" not in repr(settings) + settings.model_dump_json()


@pytest.mark.parametrize("url", ["http://collector:4318", "https://collector", "http://[::1]:4318/otlp/"])
def test_where_traces_go(url: str) -> None:
    assert load_settings(flags={"otlp_endpoint": url}).otlp_endpoint == url


@pytest.mark.parametrize(
    "url",
    [
        "collector:4318",
        "grpc://collector",
        "http://",
        "http://host:port",
        "http://user:hunter2@host",
        "http://host?key=hunter2",
        "http://host/v1/traces",
    ],
)
def test_a_collector_that_cannot_be_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(SettingsError, match=r"otlp_endpoint from flag --otlp-endpoint: give http://host") as caught:
        load_settings(flags={"otlp_endpoint": url})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["call_log_sample", "trace_sample"])
@pytest.mark.parametrize("share", [-0.1, 1.1, "nan", "half"])
def test_a_share_is_from_0_to_1(name: str, share: object) -> None:
    with pytest.raises(SettingsError, match=rf"{name} from flag --{name.replace('_', '-')}: "):
        load_settings(flags={name: share})
