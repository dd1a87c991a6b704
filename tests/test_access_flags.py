"""How commands that ask a server are told of TLS and of a token, and what they say when that is not fit."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner, Result

from recall_service.access_flags import read_access
from recall_service.cli import app
from recall_service.client.policy import SERVICE
from recall_service.errors import SettingsError
from recall_service.replay.grpc_target import GrpcTarget
from recall_service.stubs.recall.v1 import recall_pb2
from tests.certificates import Certificates, make_certificates
from tests.client.replica import Replica, running_replica
from tests.replay.questions import make_asked

TOKEN = "swordfish-42"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def mutual(certificates: Certificates) -> grpc.ServerCredentials:
    pair = (certificates.key.read_bytes(), certificates.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], certificates.ca.read_bytes(), require_client_auth=True)


def flags(certificates: Certificates, token_file: Path) -> list[str]:
    named = {
        "--tls-ca": certificates.ca,
        "--tls-cert": certificates.client_certificate,
        "--tls-key": certificates.client_key,
        "--token-file": token_file,
    }
    return [str(word) for pair in named.items() for word in pair]


def query(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["query", "--history", "a", *arguments])


async def test_query_goes_over_mutual_tls_with_the_token(certificates: Certificates, token_file: Path) -> None:
    async with running_replica(Replica(), mutual(certificates)) as replica:
        words = ["--target", replica.address, *flags(certificates, token_file), "--json"]
        result = await asyncio.to_thread(query, *words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["request_id"] == "answered"
    assert replica.metadata[0]["authorization"] == f"Bearer {TOKEN}"


async def test_a_priority_is_sent() -> None:
    priorities = []

    async def answer(request: bytes, context: Any) -> bytes:
        priorities.append(recall_pb2.RecallRequest.FromString(request).priority)
        return b""

    server = grpc.aio.server()
    server.add_registered_method_handlers(SERVICE, {"Recall": grpc.unary_unary_rpc_method_handler(answer)})
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    for flag in (["--priority", "low"], ["--priority", "high"], []):
        assert (await asyncio.to_thread(query, "--target", address, "--json", *flag)).exit_code == 0
    await server.stop(None)
    assert priorities == [recall_pb2.PRIORITY_LOW, recall_pb2.PRIORITY_HIGH, recall_pb2.PRIORITY_NORMAL]


async def test_a_replay_goes_over_mutual_tls_with_the_token(certificates: Certificates, token_file: Path) -> None:
    access = read_access(certificates.ca, certificates.client_certificate, certificates.client_key, token_file)
    info = recall_pb2.GetServingInfoResponse(bundles=[recall_pb2.BundleInfo(name="a")]).SerializeToString()
    async with running_replica(Replica(answer=info), mutual(certificates)) as replica:
        target = GrpcTarget(replica.address, access)
        assert "a " in await target.open()
        await target.ask(make_asked(), 5.0)
        await target.close()
    assert [metadata["authorization"] for metadata in replica.metadata] == [f"Bearer {TOKEN}"] * 2


def test_a_replay_that_may_not_send_its_token_says_so(tmp_path: Path, token_file: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"history": ["a"]}\n')
    words = ["--target", "recall:50051", "--token-file", str(token_file), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["replay", str(questions), *words])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: recall:50051: token: without TLS anybody on the way")
    assert TOKEN not in result.output


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["--tls-ca", "{directory}/gone.pem"], 2, "error: tls.ca {directory}/gone.pem: no such file or directory"),
        (["--tls-cert", "{directory}/token"], 2, "error: tls: certificate and key go together"),
        (["--token-file", "{directory}/gone"], 2, "error: token file {directory}/gone: No such file or directory"),
        (["--token-file", "{directory}/empty"], 2, "error: token: empty"),
        (["--token-file", "{directory}/two"], 2, "error: token: empty, or with characters"),
        (["--token-file", "{directory}/binary"], 2, "error: token file {directory}/binary: not ASCII"),
        (["--token-file", "{directory}/token", "--target", "recall:1"], 1, "recall:1: token: without TLS anybody"),
    ],
    ids=["no ca", "no key", "no file", "empty", "two words", "binary", "no TLS"],
)
def test_what_is_not_fit_is_one_line(token_file: Path, arguments: list[str], exit_code: int, message: str) -> None:
    directory = token_file.parent
    (directory / "empty").write_text("\n")
    (directory / "two").write_text(f"{TOKEN} {TOKEN}")
    (directory / "binary").write_bytes(b"\xff")
    result = query(*(argument.format(directory=directory) for argument in arguments))
    assert result.exit_code == exit_code
    assert result.stderr.startswith(message.format(directory=directory))
    assert len(result.stderr.splitlines()) == 1
    assert TOKEN not in result.output


def test_without_flags_there_is_neither_tls_nor_token() -> None:
    access = read_access(None, None, None, None)
    assert (access.tls, access.token) == (None, None)


def test_a_flag_that_is_not_fit_is_an_error_of_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="certificate and key go together"):
        read_access(None, None, tmp_path / "key", None)
