"""Settings: files, environments and flags that a tired person wrote. Passwords never show, whatever is wrong."""

import json
import os
import random
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from recall_service.config import Settings, load_settings
from recall_service.errors import SettingsError
from recall_service.redis_url import parse_redis_url
from recall_service.serving.cache.redis_connection import ConnectionBounds, open_redis
from tests.fuzz.hostile import Broken, Hostile
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_values import spoilt_toml
from tests.fuzz.odd_values import odd_text

_SECRET = "hunter2hunter2hunter2"  # nothing else that is written here holds it
_DIGEST = "0123456789abcdef" * 4
_SECRET_SETTINGS = ("redis_url", "request_log_hash_key", "tokens", "otlp_endpoint")
_DOCUMENT: dict[str, Any] = {
    "bundles": ["bundles/a"],
    "host": "::1",
    "port": 0,
    "log_level": "debug",
    "scenes": ["feed", "mail"],
    "call_log_sample": 0.5,
    "client_limits": {"ranker": 4, "*": 2},
    "scene_limits": {"feed": 10},
    "tokens": [f"ranker:recall:{_DIGEST}", f"ops:admin:{_DIGEST}"],
    "request_log_user_ids": "hash",
    "request_log_hash_key": _SECRET,
    "redis_url": f"redis://user:{_SECRET}@cache:6379/2",
    "redis_timeout_ms": 7.5,
    "max_prompt_tokens": 64,
    "max_context_tokens": 640,
    "device": "cuda:1",
    "otlp_endpoint": "https://host/path",
    "tls_certificate": "server.pem",
    "tls_key": "server.key",
    "drain_notice_seconds": 0.0,
}
_BOUNDS = ConnectionBounds(pool_size=2, wait_seconds=0.1, socket_seconds=0.1)
_REDIS_URLS = (
    f"redis+sentinel://user:{_SECRET}@a:1,b/primary/3?sentinel_password={_SECRET}",
    f"rediss+cluster://:{_SECRET}@a:1,[::1]?ssl_check_hostname=false",
    f"redis://:{_SECRET}@cache",
    f"rediss://user:{_SECRET}@cache:6380/0?ssl_cert_reqs=none",
    f"unix://:{_SECRET}@/run/redis.sock",
    "redis://[::1]:6379/1",
)


class Target:
    """Settings that can be used, or one line of error; in neither case a secret in what is shown."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "settings.toml"

    def make(self, generator: random.Random) -> Hostile:
        """place: toml, or the name of the one setting that data is the value of."""
        chance = generator.random()
        if chance < 0.5:
            return Hostile("toml", spoilt_toml(generator, _DOCUMENT))
        if chance < 0.75:
            url = generator.choice(_REDIS_URLS).encode()
            return Hostile("redis_url", mutate_bytes(generator, url, generator.choice(_REDIS_URLS).encode()))
        name = generator.choice(list(Settings.model_fields))
        valid = str(_DOCUMENT.get(name, "1"))
        text = odd_text(generator) if chance < 0.9 else valid
        return Hostile(name, mutate_bytes(generator, text.encode(errors="surrogatepass"), valid.encode()))

    def check(self, hostile: Hostile) -> None:
        environment = {}
        self._file.write_bytes(b"")
        if hostile.place == "toml":
            self._file.write_bytes(hostile.data)
        else:
            value = hostile.data.replace(b"\0", b"")  # no environment can hold one
            environment[f"RECALL_{hostile.place.upper()}"] = os.fsdecode(value)
        try:
            with patch.dict(os.environ, environment):
                settings = load_settings(self._file)
        except SettingsError as error:
            _require_no_secret(str(error), hostile)
            return
        _require_no_secret(json.dumps(settings.masked()), hostile)
        if settings.redis_url is not None:
            _use_redis_url(settings.redis_url.get_secret_value())

    def close(self) -> None:
        pass


def _require_no_secret(shown: str, hostile: Hostile) -> None:
    """One that stands where it belongs; whoever writes a password into `host` has told everybody."""
    for secret in (_SECRET, _DIGEST):
        if secret in shown and not _stands_elsewhere(secret, hostile):
            raise Broken(f"a secret is shown: {shown[:500]!r}")


def _stands_elsewhere(secret: str, hostile: Hostile) -> bool:
    """In the value of another setting, or in a part of the URL that is no secret."""
    try:
        if hostile.place == "toml":
            document = tomllib.loads(hostile.data.decode())
        else:
            document = {hostile.place: os.fsdecode(hostile.data.replace(b"\0", b""))}
    except (ValueError, RecursionError):
        return False
    if any(secret in repr((name, value)) for name, value in document.items() if name not in _SECRET_SETTINGS):
        return True
    try:
        url = parse_redis_url(str(document.get("redis_url")))
    except ValueError:
        return False
    return secret in repr((url.hosts, url.path, url.service, url.username))


def _use_redis_url(url: str) -> None:
    """What was accepted must be what a client can be made of; it connects to nothing yet."""
    with suppress(SettingsError):  # files of TLS that are not there
        open_redis(url, _BOUNDS)
