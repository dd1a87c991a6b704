"""From the URL of a Redis to what sends it commands: bounded connections, small timeouts, nothing retried.

Knows the shapes a Redis comes in, and neither keys nor values, nor what an answer may wait for.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection
from redis.backoff import NoBackoff

from recall_service.errors import SettingsError
from recall_service.redis_url import RedisShape, parse_redis_url
from recall_service.serving.cache.redis_cluster import ClusterClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    """pool_size: connections at most, to each server.

    wait_seconds: for a free connection. socket_seconds: for connecting, and again for each reply.
    """

    pool_size: int
    wait_seconds: float
    socket_seconds: float


def open_redis(url: str, bounds: ConnectionBounds) -> "Redis | ClusterClient":
    """What sends commands to the Redis at `url`; connects to nothing yet. To be closed with `aclose`.

    Raises SettingsError when a file of the URL's TLS options cannot be used.
    """
    parts = parse_redis_url(url)
    shared: dict[str, Any] = {
        "max_connections": bounds.pool_size,
        "timeout": bounds.wait_seconds,
        "socket_connect_timeout": bounds.socket_seconds,
        "socket_timeout": bounds.socket_seconds,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,  # RESP3 costs a HELLO for every connection, and its pushes are of no use here
    }
    if parts.tls is not None:
        shared["tls"] = _tls_context(parts.tls)
    own = shared | {"username": parts.username, "password": parts.password, "db": parts.database}
    if parts.shape is RedisShape.CLUSTER:
        return ClusterClient(parts.hosts, partial(_open_server, own))
    if parts.shape is RedisShape.SENTINEL:
        sentinels = [_open_server(shared | {"password": parts.sentinel_password}, host) for host in parts.hosts]
        return Redis.from_pool(_SentinelPool(parts.service, _Sentinels(sentinels), **own))
    if parts.path:
        return Redis.from_pool(
            BlockingConnectionPool(connection_class=UnixDomainSocketConnection, path=parts.path, **own)
        )
    return _open_server(own, parts.hosts[0])


def _open_server(options: dict[str, Any], address: tuple[str, int]) -> Redis:
    host, port = address
    connection_class = _TlsConnection if "tls" in options else Connection
    return Redis.from_pool(BlockingConnectionPool(connection_class=connection_class, host=host, port=port, **options))


class _TlsConnection(SSLConnection):
    """Shares one TLS context: redis-py's own connections each read all of the system's authorities, for 20 ms."""

    def __init__(self, *, tls: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = tls


class _SentinelTlsConnection(SentinelManagedConnection, _TlsConnection):
    """Asks its pool where the primary is, whenever it connects."""


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """Connections to the primary, for which a command may wait. Owns the Sentinels."""

    def __init__(self, service: str, sentinels: "_Sentinels", **options: Any) -> None:
        self._sentinels = sentinels
        connection_class = _SentinelTlsConnection if "tls" in options else SentinelManagedConnection
        super().__init__(service, sentinels, connection_class=connection_class, **options)  # type: ignore[no-untyped-call]

    async def aclose(self) -> None:
        """Drop every connection, the Sentinels' too."""
        await asyncio.gather(super().aclose(), self._sentinels.aclose())


class _Sentinels(Sentinel):
    """Asks the Sentinels in turn, the one that answered last before the others; once for all who ask meanwhile."""

    def __init__(self, clients: Sequence[Redis]) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]
        self.sentinels = list(clients)
        self._asking: asyncio.Task[tuple[str, int]] | None = None

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(super().discover_master(service_name))
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())  # they may all have left
        return await asyncio.shield(self._asking)

    async def aclose(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        await asyncio.gather(*(client.aclose() for client in self.sentinels), return_exceptions=True)


def _tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """What rediss:// trusts: the authorities of the system, or those of ssl_ca_certs in their place."""
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        context.check_hostname = options.get("ssl_check_hostname") != "false"
        if options.get("ssl_cert_reqs") == "none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "ssl_certfile" in options:
            password = options.get("ssl_password", "")  # not None, which would ask whoever sits at the terminal
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), password)
    except OSError as error:  # ssl.SSLError is one; neither quotes the password
        given = ", ".join(sorted(name for name in options if name.endswith(("certs", "certfile", "keyfile"))))
        raise SettingsError(
            f"redis_url: {given}: of no use: {error.strerror or error}; give readable PEM files that belong together"
        ) from None
    return context
