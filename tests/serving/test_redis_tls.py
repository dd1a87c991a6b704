"""Redis over TLS: whom the cache trusts, and what it shows of itself."""

import asyncio
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from redis.asyncio import Redis

from recall_service.app import open_cache
from recall_service.config import Settings
from recall_service.errors import SettingsError
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.hooks import NullObserver
from recall_service.serving.query import CacheMode, ServedFrom
from tests.certificates import Certificates, make_certificates
from tests.redis_server import free_port
from tests.serving.cache_fakes import Computation, CountingObserver, eventually
from tests.serving.conftest import CacheFactory
from tests.unpaused_clock import unpaused_clock

pytestmark = pytest.mark.redis

KEY = bytes(32)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def serving_tls(certificates: Certificates, home: Path, *options: str) -> Iterator[int]:
    """The port of a server that speaks TLS alone, to those who show a certificate."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("no redis-server is installed")
    port = free_port()
    files = {"cert": certificates.certificate, "key": certificates.key, "ca-cert": certificates.ca}
    given = [word for name, path in files.items() for word in (f"--tls-{name}-file", str(path))]
    where = ["--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(home)]
    process = subprocess.Popen([binary, *options, *where, *given], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if not any("Ready to accept" in line or "+monitor" in line for line in process.stdout):
            pytest.skip("this redis-server was built without TLS")
        yield port
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


@pytest.fixture(scope="module")
def port(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving_tls(certificates, tmp_path_factory.mktemp("redis")) as port:
        yield port


def options_of(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl_ca_certs": str(certificates.ca),
        "ssl_certfile": str(certificates.client_certificate),
        "ssl_keyfile": str(certificates.client_key),
    }


def url_of(port: int, options: dict[str, str], scheme: str = "rediss", path: str = "") -> str:
    return f"{scheme}://127.0.0.1:{port}{path}?" + "&".join(f"{name}={value}" for name, value in options.items())


async def test_with_the_right_files_it_is_used(
    port: int, certificates: Certificates, make_cache: CacheFactory, computation: Computation
) -> None:
    await is_used(make_cache(url_of(port, options_of(certificates)), failures=1000), computation)


async def is_used(cache: ResultCache, computation: Computation) -> None:
    async def is_shared() -> bool:
        answer = await cache.answer(KEY, CacheMode.USE, computation)
        return answer.served_from is ServedFrom.SHARED_CACHE

    await eventually(is_shared)


async def test_sentinels_and_their_primary_speak_tls_alike(
    port: int, certificates: Certificates, make_cache: CacheFactory, computation: Computation, tmp_path: Path
) -> None:
    settings = tmp_path / "sentinel.conf"
    settings.write_text(f"sentinel monitor answers 127.0.0.1 {port} 1\ntls-replication yes\n")
    with serving_tls(certificates, tmp_path, str(settings), "--sentinel") as sentinel_port:
        url = url_of(sentinel_port, options_of(certificates), scheme="rediss+sentinel", path="/answers")
        await is_used(make_cache(url, failures=1000), computation)


async def test_a_cluster_speaks_tls(
    certificates: Certificates, make_cache: CacheFactory, computation: Computation, tmp_path: Path
) -> None:
    options = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", str(free_port())]
    with serving_tls(certificates, tmp_path, *options) as port:
        async with Redis(port=port, ssl=True, **options_of(certificates)) as node:
            await node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await is_used(make_cache(url_of(port, options_of(certificates), "rediss+cluster"), failures=1000), computation)


@pytest.mark.parametrize("left_out", [{"ssl_ca_certs"}, {"ssl_certfile", "ssl_keyfile"}], ids=["authority", "own"])
async def test_without_them_it_is_not_and_nobody_waits(
    left_out: set[str],
    port: int,
    certificates: Certificates,
    make_cache: CacheFactory,
    computation: Computation,
    observer: CountingObserver,
) -> None:
    options = {name: value for name, value in options_of(certificates).items() if name not in left_out}
    cache = make_cache(url_of(port, options), failures=2)
    for number in range(4):
        with unpaused_clock() as clock:
            started = clock()
            answer = await cache.answer(number.to_bytes(32, "little"), CacheMode.USE, computation)
            assert clock() - started < 0.3
        assert answer.served_from is ServedFrom.ENGINE
    assert observer.requests["redis", "hit"] == 0
    assert observer.breaker == [True]


async def test_connections_share_what_they_trust(
    port: int, certificates: Certificates, make_cache: CacheFactory, computation: Computation
) -> None:
    """Reading the authorities of the system takes 20 ms, in which the event loop answers nobody."""
    with patch.object(ssl, "create_default_context", wraps=ssl.create_default_context) as reading:
        cache = make_cache(url_of(port, options_of(certificates)), pool_size=4, failures=1000)
        keys = [number.to_bytes(32, "big") for number in range(50)]
        await asyncio.gather(*(cache.answer(key, CacheMode.USE, computation) for key in keys))
        await cache.close()
    assert reading.call_count == 1


@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_a_file_that_is_not_there_is_told_at_start(name: str, certificates: Certificates, tmp_path: Path) -> None:
    options = options_of(certificates) | {name: str(tmp_path / "nowhere.pem"), "ssl_password": "hunter2"}
    url = url_of(1, options).replace("rediss://", "rediss://:hunter2@")
    with patch.dict(os.environ, {"RECALL_REDIS_URL": url}), pytest.raises(SettingsError) as caught:
        open_cache(Settings(), NullObserver())
    assert str(caught.value) == (
        "redis_url: ssl_ca_certs, ssl_certfile, ssl_keyfile: of no use: No such file or directory; "
        "give readable PEM files that belong together"
    )
