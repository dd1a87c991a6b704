"""Connections in TLS: who is let in, how the files are read again, and what is said of broken ones."""

import asyncio
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recall_service.errors import SettingsError
from recall_service.rpc.authentication import Authentication
from recall_service.rpc.server import RecallServer
from recall_service.rpc.tls import ReloadingCertificates, TlsFiles, server_credentials
from recall_service.stubs.recall.v1 import recall_pb2_grpc
from tests.certificates import Certificates, make_certificates
from tests.rpc.fake_backend import FakeBackend, by_history
from tests.rpc.test_rpc_authentication import RememberingCallLog


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


def of_server(made: Certificates) -> TlsFiles:
    return TlsFiles(made.certificate, made.key)


def mutual(made: Certificates) -> TlsFiles:
    return TlsFiles(made.certificate, made.key, made.ca)


def trust(made: Certificates, *, as_client: bool = False) -> grpc.ChannelCredentials:
    own = (made.client_key.read_bytes(), made.client_certificate.read_bytes()) if as_client else (None, None)
    return grpc.ssl_channel_credentials(made.ca.read_bytes(), *own)


async def ask(address: str, credentials: grpc.ChannelCredentials | None, *, seconds: float = 10) -> int:
    """How many items a new connection is answered with."""
    # Of its own: channels of one process to one address share a connection.
    options = (("grpc.use_local_subchannel_pool", 1),)
    channel = (
        grpc.aio.insecure_channel(address, options)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options)
    )
    async with channel:
        response = await recall_pb2_grpc.RecallServiceStub(channel).Recall(by_history(), timeout=seconds)
        return len(response.items)


class Serving:
    """A server in TLS for the length of a test."""

    def __init__(self, tls: TlsFiles, **settings: object) -> None:
        self.server = RecallServer(FakeBackend(), "127.0.0.1:0", tls=tls, **settings)  # type: ignore[arg-type]
        self.address = ""

    async def __aenter__(self) -> "Serving":
        self.address = f"localhost:{await self.server.start()}"
        await self.server.mark_serving()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()


async def test_who_trusts_the_authority_is_answered_and_who_speaks_plain_text_is_not(made: Certificates) -> None:
    async with Serving(of_server(made)) as served:
        assert await ask(served.address, trust(made)) == 3
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(served.address, None, seconds=2)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_who_trusts_another_authority_sends_nothing(made: Certificates, tmp_path: Path) -> None:
    async with Serving(of_server(made)) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(served.address, trust(make_certificates(tmp_path / "other")), seconds=2)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_mutual_tls_lets_in_the_certified_and_knows_their_name(made: Certificates, tmp_path: Path) -> None:
    log = RememberingCallLog()
    stranger = make_certificates(tmp_path / "other")
    forged = grpc.ssl_channel_credentials(
        made.ca.read_bytes(), stranger.client_key.read_bytes(), stranger.client_certificate.read_bytes()
    )
    async with Serving(mutual(made), call_log=log, authentication=Authentication(by_certificate=True)) as served:
        assert await ask(served.address, trust(made, as_client=True)) == 3
        for credentials in (trust(made), forged):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(served.address, credentials, seconds=2)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert [facts["client"] for facts in log.facts] == [made.client_common_name]


async def test_new_connections_get_the_new_certificate_and_old_ones_live_on(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recall_service.rpc.tls._LOOK_SECONDS", 0.0)
    async with Serving(of_server(made)) as served:
        old_trust = trust(made)
        async with grpc.aio.secure_channel(served.address, old_trust) as old:
            health = health_pb2_grpc.HealthStub(old)
            await health.Check(health_pb2.HealthCheckRequest())
            new_trust = trust(make_certificates(tmp_path))  # the same files, another authority
            assert await ask(served.address, new_trust) == 3
            with pytest.raises(grpc.aio.AioRpcError):
                await ask(served.address, old_trust, seconds=2)
            await health.Check(health_pb2.HealthCheckRequest())
            made.certificate.write_text("half a file")
            assert await ask(served.address, new_trust) == 3


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def replace(made: Certificates) -> None:
    """As certificate managers do it: new files under the old names, with other inodes."""
    fresh = make_certificates(made.ca.parent / "fresh")
    os.replace(fresh.certificate, made.certificate)
    os.replace(fresh.key, made.key)


def test_files_are_looked_at_once_a_second_and_read_when_they_changed(made: Certificates) -> None:
    clock = Clock()
    reloading = ReloadingCertificates(of_server(made), clock=clock)
    clock.now = 5.0
    assert reloading.changed() is None
    replace(made)
    clock.now = 5.9
    assert reloading.changed() is None
    clock.now = 6.0
    assert reloading.changed() is not None
    clock.now = 7.0
    assert reloading.changed() is None


def test_a_broken_file_is_told_of_once_and_a_sound_one_after_it_is_taken(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    reloading = ReloadingCertificates(of_server(made), clock=clock)
    made.key.unlink()
    for clock.now in (1.0, 2.0, 3.0):
        assert reloading.changed() is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "tls_key" in caplog.text
    replace(made)
    clock.now = 4.0
    assert reloading.changed() is not None


def test_files_that_could_not_be_read_are_tried_again_though_nothing_about_them_changes(
    made: Certificates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when there is no file descriptor left for the moment."""
    clock = Clock()
    reloading = ReloadingCertificates(of_server(made), clock=clock)
    replace(made)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", raise_too_many_files)
        for clock.now in (1.0, 2.0):
            assert reloading.changed() is None
    assert len(caplog.records) == 1
    clock.now = 3.0
    assert reloading.changed() is not None


def raise_too_many_files(path: Path) -> bytes:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def test_another_complaint_is_told_of_and_so_is_one_after_a_sound_file(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    reloading = ReloadingCertificates(of_server(made), clock=clock)
    key = made.key.read_bytes()
    for clock.now, content in ((1.0, b"half a file"), (2.0, b"half another"), (3.0, key), (4.0, b"half a file")):
        made.key.write_bytes(content)
        reloading.changed()
    made.key.unlink()
    clock.now = 5.0
    reloading.changed()
    complaints = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["is not the key of" in complaint for complaint in complaints] == [True, True, False]


def test_a_change_of_owner_or_mode_is_a_change(made: Certificates) -> None:
    clock = Clock()
    reloading = ReloadingCertificates(of_server(made), clock=clock)
    time.sleep(0.05)  # clocks of file systems are coarse
    made.key.chmod(0o400)
    clock.now = 1.0
    assert reloading.changed() is not None


def test_a_pair_of_which_one_half_was_read_before_a_rotation_is_not_served(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paths hold a sound pair when they are checked; the certificate that was read is of the pair before."""
    clock = Clock()
    reloading = ReloadingCertificates(of_server(made), clock=clock)
    replace(made)
    read_bytes = Path.read_bytes

    def read_and_rotate(path: Path) -> bytes:
        content = read_bytes(path)
        if path == made.certificate:
            replace(made)
        return content

    clock.now = 1.0
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_and_rotate)
        assert reloading.changed() is None
    clock.now = 2.0
    assert reloading.changed() is not None


def other_key(made: Certificates) -> TlsFiles:
    return TlsFiles(made.certificate, made.client_key)


def missing(made: Certificates) -> TlsFiles:
    return TlsFiles(made.certificate.with_name("gone.pem"), made.key)


def a_directory(made: Certificates) -> TlsFiles:
    return TlsFiles(made.certificate, made.key.parent)


def key_as_certificate(made: Certificates) -> TlsFiles:
    return TlsFiles(made.key, made.key)


def nonsense_ca(made: Certificates) -> TlsFiles:
    made.ca.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    return mutual(made)


@pytest.mark.parametrize(
    ("break_files", "message"),
    [
        (missing, r"tls_certificate: .*gone\.pem cannot be read: No such file or directory; give a readable PEM file"),
        (a_directory, r"tls_key: .* cannot be read: Is a directory; give a readable PEM file"),
        (key_as_certificate, r"tls_certificate: .*server\.key holds no certificate in PEM; give one"),
        (other_key, r"tls_key: .*client\.key is not the key of .*server\.pem, .*; give the one that belongs to it"),
        (nonsense_ca, r"tls_client_ca: .*ca\.pem holds no certificate in PEM; give one"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_files_that_cannot_be_used_are_named(
    made: Certificates, break_files: Callable[[Certificates], TlsFiles], message: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{message}$"):
        server_credentials(break_files(made))


async def test_a_handshake_that_never_comes_holds_up_nobody(made: Certificates) -> None:
    async with Serving(of_server(made)) as served:
        _, port = served.address.split(":")
        writers = [(await asyncio.open_connection("127.0.0.1", int(port)))[1] for _ in range(20)]
        assert await ask(served.address, trust(made)) == 3
        for writer in writers:
            writer.close()
