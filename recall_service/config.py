"""Every setting of the service, typed, with its default; where it comes from; what is wrong with it.

A setting is looked up in the flags, then in the config file, then in the environment as RECALL_<NAME>. This module
knows no component that the settings are for.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from recall_service.errors import SettingsError
from recall_service.redis_url import parse_redis_url
from recall_service.setting_values import (
    is_base_url,
    is_loopback,
    mask_token,
    mask_url,
    pairs_of,
    token_problem,
)

_PREFIX = "RECALL_"
_CONFIG_VARIABLE = "RECALL_CONFIG"
_SECRETS = frozenset({"redis_url", "otlp_endpoint", "request_log_hash_key", "tokens"})  # never quoted in an error

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

    # How often the stores that catalogues lie in are looked at for what others made current there; 0: never.
    catalog_watch_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0

    # Where. Loopback unless told otherwise: TLS and tokens are off until they are set.
    host: str = "127.0.0.1"
    port: Port = 50_051
    metrics_host: str = "127.0.0.1"
    metrics_port: Port = 9464
    admin_host: str = "127.0.0.1"  # of the operators' service; other than loopback only with tokens
    admin_port: Port = 50_052
    reflection: bool = True  # tell anybody who connects what methods and messages there are

    # Who may call. A token is "name:rights:digest", as `recall-service token` prints it; rights are recall, admin or
    # recall+admin. No token set: everybody who can connect may call.
    tls_certificate: Path | None = None  # PEM: the server's chain; read again when the file changes
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # PEM: callers must show a certificate that one of these signed
    tokens: Annotated[tuple[str, ...], NoDecode] = ()

    # How much of a call. Written "name=number,name=number"; * is any client that is not named.
    max_request_bytes: Count = 4 * 1024**2
    max_batch_requests: Count = 64  # entries of one BatchRecall
    # Questions of one client at once. Entries of a batch count one by one and come at once: a batch larger than its
    # client's limit always loses entries.
    client_limits: Annotated[dict[str, Count], NoDecode] = {}
    scene_limits: Annotated[dict[str, Count], NoDecode] = {}  # questions of one scene at once; scenes of `scenes`

    # Connections, and the end of them.
    keepalive_seconds: Seconds = 60.0  # a connection that is silent so long is asked whether it lives
    max_connection_age_seconds: Seconds = 600.0  # about; then its client connects anew, maybe to a new replica
    drain_notice_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0  # after SIGTERM, for balancers
    drain_seconds: Seconds = 20.0  # after that, how long calls under way may take to end

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
    max_queue_rows: Count = 8192  # beams of the requests that wait; what would be more is refused
    max_queue_tokens: Count = 65_536  # prompt tokens of the requests that wait
    priority_ageing_seconds: Seconds = 1.0  # having waited so much longer counts as one priority more
    stuck_step_seconds: Seconds = 30.0  # a step of the engine that takes longer turns health to NOT_SERVING
    max_prompt_tokens: Count = 2048  # of one request
    max_context_tokens: Count = 16_384  # of all running requests together
    prefix_cache: bool = True  # keep the KV of prompts for those that begin alike, where running requests leave room
    prefix_cache_bytes: Annotated[int, Field(ge=0)] = 0  # more room for that, in each bundle's engine
    filter_cache_bytes: Annotated[int, Field(ge=0)] = 512 * 1024**2  # a bundle's live sets; as much again in use
    torch_threads: Annotated[int, Field(ge=0)] = 0  # 0: as many as torch chooses

    # The result cache.
    local_cache_bytes: Annotated[int, Field(ge=0)] = 64 * 1024**2  # 0: none in this process
    cache_ttl_seconds: Seconds = 300.0
    # So long after that an answer still serves, unmarked, while it is computed anew in the background; 0: not at all.
    cache_stale_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    cache_ttl_jitter: Annotated[float, Field(ge=0, lt=1)] = 0.1  # share of the ttl that chance takes away, at most
    redis_url: SecretStr | None = None  # none: the cache in this process alone serves
    redis_key_prefix: str = "recall:v1:"
    # All that Redis may add to an answer: the time for a get. A put, which no answer waits for, has five times that.
    redis_timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 20.0
    redis_pool_size: Count = 32
    redis_breaker_failures: Count = 5  # so many in a row and Redis is not asked ...
    redis_breaker_open_seconds: Seconds = 5.0  # ... for so long

    @field_validator("bundles", "scenes", "tokens", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Let the environment and flags write a list as "a,b"."""
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("client_limits", "scene_limits", mode="before")
    @classmethod
    def _pair_up(cls, value: object) -> object:
        """Let the environment and flags write a table as "a=1,b=2"."""
        return pairs_of(value) if isinstance(value, str) else value

    @field_validator("scene_limits")
    @classmethod
    def _limits_known_scenes(cls, value: dict[str, int], info: ValidationInfo) -> dict[str, int]:
        if strangers := sorted(set(value) - set(scenes := info.data.get("scenes", ()))):
            raise ValueError(f"{strangers[0]!r} is none of scenes = {', '.join(scenes)}; add it there, or leave it out")
        return value

    @field_validator("client_limits")
    @classmethod
    def _limits_known_clients(cls, value: dict[str, int], info: ValidationInfo) -> dict[str, int]:
        """Where tokens are set, no caller goes by another name. Without them names are those of certificates."""
        names = [token.partition(":")[0] for token in info.data.get("tokens", ())]
        if names and (strangers := sorted(set(value) - {*names, "*"})):
            raise ValueError(f"{strangers[0]!r} is no name of a token; those are {', '.join(names)}; * is all others")
        return value

    @field_validator("tokens")
    @classmethod
    def _are_tokens(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for position, token in enumerate(value):
            if problem := token_problem(token):
                raise ValueError(f"entry {position}: {problem}")
        names = [token.partition(":")[0] for token in value]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"{twice!r} is there twice; give every token a name of its own")
        return value

    @field_validator("otlp_endpoint")
    @classmethod
    def _is_collector(cls, value: str | None) -> str | None:
        if value is not None and not is_base_url(value):
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

    @model_validator(mode="after")
    def _agree(self) -> Self:
        """What no single setting can see. The message begins with the setting to change."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_key: certificate and key go together; give both or none")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("tls_client_ca: mutual TLS needs tls_certificate and tls_key; give them too")
        if not self.tokens and not is_loopback(self.admin_host):
            raise ValueError(
                f"admin_host: {self.admin_host!r} is not loopback, and no token is set; set tokens, or 127.0.0.1"
            )
        return self

    @field_validator("redis_url")
    @classmethod
    def _is_redis_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_redis_url(value.get_secret_value())
        return value

    def masked(self) -> dict[str, Any]:
        """Every setting by name, as JSON values; passwords and digests masked."""
        values = self.model_dump(mode="json")
        if self.redis_url is not None:
            values["redis_url"] = mask_url(self.redis_url.get_secret_value())
        values["tokens"] = [mask_token(token) for token in self.tokens]
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
            if not detail["loc"]:  # settings that contradict each other; the message names them
                problems.append(detail["msg"].removeprefix("Value error, "))
                continue
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
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is TOML, and no int of Python's
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
