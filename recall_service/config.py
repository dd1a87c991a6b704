"""Every setting of the service, typed, with its default; where it comes from; what is wrong with it.

A setting is looked up in the flags, then in the config file, then in the environment as RECALL_<NAME>. This module
knows no component that the settings are for.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from recall_service.errors import SettingsError

_PREFIX = "RECALL_"
_CONFIG_VARIABLE = "RECALL_CONFIG"
_SECRETS = frozenset({"redis_url", "otlp_endpoint", "request_log_hash_key"})  # never quoted in an error

Port = Annotated[int, Field(ge=0, le=65_535)]  # 0: any free one
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseSettings):
    """The resolved settings. Made by `load_settings`, which explains what is wrong; never changed afterwards."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, frozen=True)

    # What is served. Lists are comma-separated in the environment.
    bundles: Annotated[tuple[Path, ...], NoDecode] = ()  # bundle directories
    default_bundle: str = ""  # asked when a request names none; empty: the first of `bundles`

    # Where. Loopback unless told otherwise, for the service has neither TLS nor authentication of its own.
    host: str = "127.0.0.1"
    port: Port = 50_051
    metrics_host: str = "127.0.0.1"
    metrics_port: Port = 9464
    max_batch_requests: Count = 64  # entries of one BatchRecall
    drain_seconds: Seconds = 20.0  # after SIGTERM, how long calls under way may take to end

    # What is told.
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"
    scenes: Annotated[tuple[str, ...], NoDecode] = ("feed", "search", "mail")  # metric labels; others are "other"
    call_log_sample: Share = 0.01  # of the calls without a failure, one line each; failures are logged whatever it is
    otlp_endpoint: str | None = None  # base URL of a collector's OTLP/HTTP; none: no traces
    trace_sample: Share = 0.01  # of the calls; one whose caller decided by its traceparent is not drawn

    # The request log: what was asked and answered, in files that replay reads.
    request_log_dir: Path | None = None  # none: no log; one directory for each server
    request_log_sample: Share = 0.1  # of the recalls, chosen by request id; all of them cost cached answers about 6 %
    request_log_max_file_bytes: Count = 64 * 1024**2  # a new file is begun beyond it ...
    request_log_max_file_seconds: Seconds = 3600.0  # ... and once the old one has this age
    request_log_max_files: Count = 16  # the oldest are deleted
    request_log_user_ids: Literal["keep", "drop", "hash"] = "drop"
    request_log_hash_key: Annotated[SecretStr | None, Field(validate_default=True)] = None

    # The engine.
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"  # auto: the GPU, where there is one
    max_rows: Count = 2048  # live beams of all requests together
    max_queue_requests: Count = 1024  # waiting to be admitted; more are refused
    max_prompt_tokens: Count = 2048  # of one request
    max_context_tokens: Count = 16_384  # of all running requests together
    prefix_cache: bool = True  # keep the KV of prompts for those that begin alike, where running requests leave room
    prefix_cache_bytes: Annotated[int, Field(ge=0)] = 0  # more room for that, in each bundle's engine
    torch_threads: Annotated[int, Field(ge=0)] = 0  # 0: as many as torch chooses

    # The result cache.
    local_cache_bytes: Annotated[int, Field(ge=0)] = 64 * 1024**2  # 0: none in this process
    cache_ttl_seconds: Seconds = 300.0
    cache_ttl_jitter: Annotated[float, Field(ge=0, lt=1)] = 0.1  # share of the ttl that chance takes away, at most
    redis_url: SecretStr | None = None  # none: the cache in this process alone serves
    redis_key_prefix: str = "recall:v1:"
    redis_timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 20.0  # all that Redis may add to an answer
    redis_pool_size: Count = 32
    redis_breaker_failures: Count = 5  # so many in a row and Redis is not asked ...
    redis_breaker_open_seconds: Seconds = 5.0  # ... for so long

    @field_validator("bundles", "scenes", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Let the environment and flags write a list as "a,b"."""
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("otlp_endpoint")
    @classmethod
    def _is_collector(cls, value: str | None) -> str | None:
        if value is not None and not _is_base_url(value):
            raise ValueError(
                "give http://host[:port][/path] or https://...; /v1/traces is added to it; credentials go into "
                "OTEL_EXPORTER_OTLP_HEADERS"
            )
        return value

    @field_validator("request_log_hash_key")
    @classmethod
    def _can_hash(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        num_bytes = 0 if value is None else len(value.get_secret_value().encode())
        if value is None and info.data.get("request_log_user_ids") == "hash":
            raise ValueError("request_log_user_ids is hash, and there is no key; give 16 to 64 bytes, or drop the ids")
        if value is not None and not 16 <= num_bytes <= 64:
            raise ValueError(f"a key of {num_bytes} bytes; give 16 to 64, and keep them secret")
        return value

    @field_validator("max_context_tokens")
    @classmethod
    def _holds_one_prompt(cls, value: int, info: ValidationInfo) -> int:
        if value < (longest := info.data.get("max_prompt_tokens", 0)):
            raise ValueError(f"one request may have max_prompt_tokens = {longest}; give at least that")
        return value

    @field_validator("redis_url")
    @classmethod
    def _is_redis_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _is_redis_url(value.get_secret_value()):
            raise ValueError(
                "give redis://[user:password@]host[:port][/db], rediss:// for TLS, or unix:///path; percent-encode"
                " special characters of the password; options after ? are those of TLS, ssl_*"
            )
        return value

    def masked(self) -> dict[str, Any]:
        """Every setting by name, as JSON values, the password of `redis_url` masked."""
        values = self.model_dump(mode="json")
        if self.redis_url is not None:
            values["redis_url"] = _mask(self.redis_url.get_secret_value())
        return values


def load_settings(config_file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process.

    config_file: a TOML file of settings by name, at its top level; None: the one that RECALL_CONFIG names, if any.
    flags: settings by name that override it; None as a value means not given.
    Raises SettingsError naming, for all that is wrong, the setting, where it came from, its value and the remedy.
    """
    path = config_file or (Path(os.environ[_CONFIG_VARIABLE]) if os.environ.get(_CONFIG_VARIABLE) else None)
    from_file = _read(path) if path is not None else {}
    from_flags = {name: value for name, value in (flags or {}).items() if value is not None}
    problems = _unknown_names(from_flags, from_file, path)
    known = {name: value for name, value in (from_file | from_flags).items() if name in Settings.model_fields}
    try:
        settings = Settings(**known)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            name = str(detail["loc"][0])
            origin = _origin(name, from_flags, from_file, path)
            problems.append(f"{name} from {origin}: {_shown(name, detail['input'])}{_remedy(detail['msg'])}")
    if problems:
        # Not chained to pydantic's error, which would quote the value of a secret.
        raise SettingsError("; ".join(problems))
    return settings


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SettingsError(f"config file {path}: cannot be read: {reason}; give a readable TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"config file {path}: not TOML: {error}; write settings as name = value") from None


def _unknown_names(from_flags: dict[str, Any], from_file: dict[str, Any], path: Path | None) -> list[str]:
    """A complaint for every name that is no setting, with the nearest one that is."""
    settings = list(Settings.model_fields)
    variables = [_PREFIX + name.upper() for name in settings] + [_CONFIG_VARIABLE]
    given = [name for name in os.environ if name.upper().startswith(_PREFIX)]
    return (
        [f"flag {name}: no such setting{_nearest(name, settings)}" for name in from_flags if name not in settings]
        + [f"{name} in {path}: no such setting{_nearest(name, settings)}" for name in from_file if name not in settings]
        + [
            f"environment variable {name}: no such setting{_nearest(name.upper(), variables)}"
            for name in given
            if name.upper() not in variables
        ]
    )


def _nearest(name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]}?" if nearest else "; remove it"


def _origin(name: str, from_flags: dict[str, Any], from_file: dict[str, Any], path: Path | None) -> str:
    if name in from_flags:
        return f"flag --{name.replace('_', '-')}"
    if name in from_file:
        return str(path)
    variable = _PREFIX + name.upper()
    return variable if any(given.upper() == variable for given in os.environ) else "its default"


def _shown(name: str, value: object) -> str:
    return "" if name in _SECRETS else f"{value!r}; "


def _remedy(message: str) -> str:
    """Pydantic's message, as the second half of a sentence."""
    message = message.removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def _is_redis_url(url: str) -> bool:
    """Whether redis-py reads out of `url` what it seems to say: it ignores a path or a fragment it cannot use."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    # Other options after "?" would override the timeouts and the pool that bound what Redis may cost.
    if parts.fragment or not all(option.startswith("ssl_") for option in parts.query.split("&") if option):
        return False
    if parts.scheme == "unix":
        return bool(parts.path)
    return parts.scheme in ("redis", "rediss") and has_host and re.fullmatch(r"/?\d*", parts.path) is not None


def _mask(url: str) -> str:
    """`url` with its password, and the values of its options, as ***."""
    address, question_mark, _ = url.partition("?")
    masked = re.sub(r"//([^:@/]*:)?[^/]*@", r"//\1***@", address)
    return f"{masked}?***" if question_mark else masked


def _is_base_url(url: str) -> bool:
    """Whether `url` is one of HTTP to which a path can be added, and holds no credentials."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme in ("http", "https") and has_host and is_plain and "/v1/traces" not in parts.path
