"""Where a client goes, over TLS and as whom: what is sent, what is refused, and what never shows."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from recall_service.client import AsyncRecallClient, RecallClient, RecallClientError, Tls
from recall_service.client.channel import Access, resolvable
from recall_service.client.policy import KEEPALIVE_MILLISECONDS
from recall_service.rpc.connection_options import ConnectionOptions
from tests.certificates import Certificates, make_certificates
from tests.client.conftest import Ask
from tests.client.replica import Replica, running_replica

TOKEN = "swordfish-42"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def credentials(certificates: Certificates, *, mutual: bool = False) -> grpc.ServerCredentials:
    pair = (certificates.key.read_bytes(), certificates.certificate.read_bytes())
    ca = certificates.ca.read_bytes() if mutual else None
    return grpc.ssl_server_credentials([pair], ca, require_client_auth=mutual)


async def test_tls_with_the_right_authority_and_no_other(ask: Ask, certificates: Certificates, tmp_path: Path) -> None:
    stranger = make_certificates(tmp_path)
    async with running_replica(Replica(), credentials(certificates)) as replica:
        assert (await ask(replica.address, history=["a"], client={"tls": Tls(certificates.ca)})).items == ()
        for client in ({"tls": Tls(stranger.ca)}, {"tls": Tls()}, {}):
            with pytest.raises(RecallClientError, match="UNAVAILABLE"):
                await ask(replica.address, history=["a"], timeout=2, client=client)
    assert len(replica.came) == 1


async def test_mutual_tls(ask: Ask, certificates: Certificates) -> None:
    ours = Tls(certificates.ca, certificates.client_certificate, certificates.client_key)
    async with running_replica(Replica(), credentials(certificates, mutual=True)) as replica:
        assert (await ask(replica.address, history=["a"], client={"tls": ours})).items == ()
        with pytest.raises(RecallClientError, match="UNAVAILABLE"):
            await ask(replica.address, history=["a"], timeout=2, client={"tls": Tls(certificates.ca)})
    assert len(replica.came) == 1


async def test_the_name_of_the_server_is_checked(ask: Ask, certificates: Certificates) -> None:
    async with running_replica(Replica(), credentials(certificates)) as replica:
        await ask(replica.address, history=["a"], client={"tls": Tls(certificates.ca, server_name="localhost")})
        client = {"tls": Tls(certificates.ca, server_name="elsewhere.test")}
        with pytest.raises(RecallClientError, match="UNAVAILABLE"):
            await ask(replica.address, history=["a"], timeout=2, client=client)
    assert len(replica.came) == 1


@pytest.mark.parametrize("method", ["recall", "serving_info"])
async def test_the_token_goes_with_every_call(ask: Ask, certificates: Certificates, method: str) -> None:
    question: Any = {"history": ["a"]} if method == "recall" else {}
    async with running_replica(Replica(answer=b""), credentials(certificates)) as replica:
        client = {"tls": Tls(certificates.ca), "token": TOKEN}
        await ask(replica.address, method, client=client, **question)
    assert [metadata["authorization"] for metadata in replica.metadata] == [f"Bearer {TOKEN}"]


async def test_a_token_that_changes_is_asked_for_before_every_call() -> None:
    tokens = iter(["first", "second"])
    async with (
        running_replica(Replica(answer=b"")) as replica,
        AsyncRecallClient(replica.address, token=lambda: next(tokens)) as client,
    ):
        await client.recall(history=["a"])
        await client.recall_batch([{"history": ["a"]}])
    assert [metadata["authorization"] for metadata in replica.metadata] == ["Bearer first", "Bearer second"]


async def test_without_a_token_none_is_sent(ask: Ask) -> None:
    async with running_replica(Replica()) as replica:
        await ask(replica.address, history=["a"])
    assert "authorization" not in replica.metadata[0]


@pytest.mark.parametrize(
    "target",
    ["recall:50051", "10.1.2.3:50051", "dns:///recall:1", "ipv4:127.0.0.1:1,10.1.2.3:1", "[2001:db8::1]:1", "recall"],
)
async def test_a_token_goes_to_no_other_machine_without_tls(ask: Ask, target: str) -> None:
    with pytest.raises(ValueError, match=r"anybody on the way to .*give tls, or allow_insecure_token=True") as caught:
        await ask(target, history=["a"], client={"token": TOKEN})
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    "target",
    ["localhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "unix:/nowhere", "dns:///localhost:1", "ipv4:127.0.0.1:1"],
)
def test_a_token_goes_to_this_machine_without_tls(target: str) -> None:
    RecallClient(target, token=TOKEN).close()


async def test_a_token_goes_anywhere_when_told_so(certificates: Certificates) -> None:
    RecallClient("recall:50051", token=TOKEN, allow_insecure_token=True).close()
    RecallClient("recall:50051", token=TOKEN, tls=Tls(certificates.ca)).close()


@pytest.mark.parametrize(
    "token", ["", f"{TOKEN}\n", f"{TOKEN} {TOKEN}", f"{TOKEN}é"], ids=["empty", "line", "two", "é"]
)
async def test_a_token_that_no_header_carries_is_refused_without_quoting_it(ask: Ask, token: str) -> None:
    for given in (token, lambda: token):
        with pytest.raises(ValueError, match="token: empty, or with characters that no header carries") as caught:
            await ask("127.0.0.1:1", history=["a"], client={"token": given})
        assert TOKEN not in str(caught.value)


async def test_the_token_never_shows(ask: Ask) -> None:
    assert TOKEN not in repr(Access(token=TOKEN))
    with RecallClient("127.0.0.1:1", token=TOKEN) as client:
        assert TOKEN not in repr(vars(client))
    with pytest.raises(RecallClientError) as caught:
        await ask("127.0.0.1:1", history=["a"], timeout=2, client={"token": TOKEN})
    assert TOKEN not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"ca": "gone.pem"}, r"tls\.ca .*gone\.pem: no such file or directory; give a file of PEM"),
        ({"ca": "junk.pem"}, r"tls\.ca .*junk\.pem: not PEM of that kind; give a file of PEM"),
        ({"certificate": "client.pem"}, "certificate and key go together"),
        ({"key": "client.key"}, "certificate and key go together"),
        ({"certificate": "junk.pem", "key": "client.key"}, r"tls\.certificate .*junk\.pem, .*not PEM of that kind"),
        ({"certificate": "client.pem", "key": "server.key"}, "give a PEM certificate and its own key"),
        ({"certificate": "client.pem", "key": "gone.key"}, "no such file or directory"),
    ],
    ids=["no ca", "junk ca", "no key", "no certificate", "junk", "another's key", "key is gone"],
)
def test_files_that_are_not_fit_are_named(certificates: Certificates, files: dict[str, str], message: str) -> None:
    directory = certificates.ca.parent
    (directory / "junk.pem").write_text("junk")
    with pytest.raises(ValueError, match=message):
        Tls(**{name: directory / file for name, file in files.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("recall:50051", "dns:///recall:50051"),
        ("recall", "dns:///recall"),
        ("[::1]:50051", "dns:///[::1]:50051"),
        ("dns:///recall:1", "dns:///recall:1"),
        ("ipv4:127.0.0.1:1,127.0.0.1:2", "ipv4:127.0.0.1:1,127.0.0.1:2"),
        ("unix:/run/recall", "unix:/run/recall"),
        ("unix:1", "unix:1"),
    ],
)
def test_every_address_of_a_host_is_resolved(target: str, expected: str) -> None:
    assert resolvable(target) == expected


@pytest.mark.parametrize("target", ["", " ", "recall:", "re call:1", "/recall", "::1"])
def test_a_target_that_is_none_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="is no address; give host:port"):
        RecallClient(target)


def test_our_servers_let_clients_ask_whether_they_live_as_often_as_they_do() -> None:
    options = dict(ConnectionOptions().channel_arguments(drain_seconds=1.0))
    assert options["grpc.http2.min_ping_interval_without_data_ms"] <= KEEPALIVE_MILLISECONDS
