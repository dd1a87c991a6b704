"""The URL of a Redis: one server, a primary that Sentinels name, or a Cluster. Text in, parts out; opens nothing.

Nothing in it reaches the timeouts and the pool, which bound what Redis may cost.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import unquote

REMEDY = (
    "give redis://[user:password@]host[:port][/db], unix:///path, "
    "redis+sentinel://[user:password@]host[:port],host[:port]/service[/db] or "
    "redis+cluster://[user:password@]host[:port],host[:port]; rediss in place of redis for TLS; percent-encode special "
    "characters of the password; options after ? are those of TLS: ssl_ca_certs, ssl_certfile, ssl_keyfile, "
    "ssl_password, ssl_check_hostname=true|false, ssl_cert_reqs=required|none; and sentinel_password"
)

_URL = re.compile(
    r"(?P<transport>redis|rediss|unix)(?:\+(?P<shape>sentinel|cluster))?://"
    r"(?:(?P<credentials>[^@/?#\s]*)@)?(?P<hosts>[^@/?#\s]*)(?P<path>/[^?#]*)?(?:\?(?P<options>[^#\s]*))?"
)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::(?P<port>\d{1,5}))?")
_TLS_VALUES = {
    "ssl_ca_certs": r".+",
    "ssl_certfile": r".+",
    "ssl_keyfile": r".+",
    "ssl_password": r".+",
    "ssl_check_hostname": r"true|false",
    "ssl_cert_reqs": r"required|none",
}
_DEFAULT_PORTS = {None: 6379, "cluster": 6379, "sentinel": 26379}


class RedisShape(Enum):
    """Who answers behind a URL."""

    SERVER = None
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUrl:
    """The parts of a URL, percent-decoded.

    hosts: (host, port): the server, all Sentinels, or some nodes of a Cluster; none of a unix socket.
    path: of a unix socket, else empty.
    service: the name that Sentinels know the primary by, else empty.
    tls: its ssl_* options by name; None: plain text. It holds for Sentinels and servers alike.
    """

    shape: RedisShape
    hosts: tuple[tuple[str, int], ...]
    path: str
    service: str
    database: int
    username: str | None
    password: str | None = field(repr=False)
    sentinel_password: str | None = field(repr=False)
    tls: Mapping[str, str] | None = field(repr=False)


def parse_redis_url(url: str) -> RedisUrl:
    """Raises ValueError, with the remedy and nothing of the URL, unless every part of it means something."""
    if (parts := _URL.fullmatch(url)) is None:
        raise ValueError(REMEDY)
    is_unix = parts["transport"] == "unix"
    shape = RedisShape(parts["shape"])
    hosts = () if is_unix else tuple(_host(text, parts["shape"]) for text in parts["hosts"].split(","))
    options = _options(parts["options"] or "")
    sentinel_password = options.pop("sentinel_password", None) if shape is RedisShape.SENTINEL else None
    tls = _tls(options) if parts["transport"] == "rediss" else None
    service, database = ("", 0) if is_unix else _path(parts["path"] or "", shape)
    username, _, password = (parts["credentials"] or "").partition(":")
    _require(not options or tls is not None)
    if is_unix:
        _require(shape is RedisShape.SERVER and not parts["hosts"] and bool(parts["path"]))
    elif shape is RedisShape.SERVER:
        _require(len(hosts) == 1)
    return RedisUrl(
        shape=shape,
        hosts=hosts,
        path=unquote(parts["path"]) if is_unix else "",
        service=service,
        database=database,
        username=unquote(username) or None,
        password=unquote(password) or None,
        sentinel_password=sentinel_password,
        tls=tls,
    )


def _host(text: str, shape: str | None) -> tuple[str, int]:
    if (parts := _HOST.fullmatch(text)) is None:
        raise ValueError(REMEDY)
    port = _DEFAULT_PORTS[shape] if parts["port"] is None else int(parts["port"])
    _require(0 < port < 65_536)
    return parts["host"].strip("[]"), port


def _path(path: str, shape: RedisShape) -> tuple[str, int]:
    """Service and database."""
    pattern = {
        RedisShape.SERVER: r"/?(?P<database>\d{0,9})",
        RedisShape.SENTINEL: r"/(?P<service>[^/\s]+)(?:/(?P<database>\d{0,9}))?",
        RedisShape.CLUSTER: r"/?",  # a cluster has no databases
    }[shape]
    if (parts := re.fullmatch(pattern, path)) is None:
        raise ValueError(REMEDY)
    named = parts.groupdict()
    return unquote(named.get("service") or ""), int(named.get("database") or 0)


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for option in filter(None, text.split("&")):
        name, _, value = option.partition("=")
        _require(name not in options and bool(value))
        options[name] = unquote(value)
    return options


def _tls(options: dict[str, str]) -> Mapping[str, str]:
    for name, value in options.items():
        _require(name in _TLS_VALUES and re.fullmatch(_TLS_VALUES[name], value) is not None)
    _require("ssl_certfile" in options or not {"ssl_keyfile", "ssl_password"} & set(options))
    return options


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError(REMEDY)
