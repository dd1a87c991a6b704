"""How settings protect a server: what is said of it, and that it is so, from settings to a caller's status."""

import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from recall_service.app import serve
from recall_service.errors import SettingsError
from recall_service.protection import announce_protection, describe_protection, exposures
from recall_service.stubs.recall.v1 import admin_pb2, admin_pb2_grpc, recall_pb2_grpc
from recall_service.tokens import make_token
from tests.certificates import make_certificates
from tests.rpc.fake_backend import by_history
from tests.serving.bundles import write_bundle
from tests.serving_here import serving_here, small_settings

RANKER, OPERATOR = make_token("ranker", "recall"), make_token("operator", "admin")


TLS = {"tls_certificate": "a.pem", "tls_key": "a.key"}
TOKENS = {"tokens": [RANKER.entry, OPERATOR.entry]}
MUTUAL = {**TLS, "tls_client_ca": "ca.pem"}


@pytest.mark.parametrize(
    ("changes", "description"),
    [
        ({}, "TLS off, client certificates off, 0 tokens"),
        (TLS | TOKENS, "TLS on, client certificates off, 2 tokens"),
        (MUTUAL, "TLS on, client certificates on, 0 tokens"),
    ],
    ids=["nothing", "TLS and tokens", "mutual"],
)
def test_the_line_says_what_is_on(changes: dict[str, Any], description: str) -> None:
    assert describe_protection(small_settings(**changes)) == description


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({}, None),
        ({"host": "::1"}, None),
        ({"host": "0.0.0.0"}, "whoever reaches 0.0.0.0 may ask; set tokens"),
        ({"host": "::"} | TLS, "whoever reaches :: may ask; set tokens"),
        ({"host": "0.0.0.0"} | TOKENS, "tokens travel to 0.0.0.0 in plain text; set tls_certificate"),
        ({"admin_host": "10.0.0.1"} | TOKENS, "tokens travel to 10.0.0.1 in plain text"),
        ({"host": "0.0.0.0"} | TLS | TOKENS, None),
        ({"host": "0.0.0.0"} | MUTUAL, None),
    ],
    ids=[
        "loopback",
        "IPv6 loopback",
        "open",
        "TLS alone",
        "tokens in plain text",
        "admin's",
        "TLS and tokens",
        "mutual",
    ],
)
def test_strangers_on_the_network_are_warned_of(changes: dict[str, Any], begins: str | None) -> None:
    warnings = exposures(small_settings(**changes))
    assert [warning.startswith(str(begins)) for warning in warnings] == [True] * (begins is not None)


@pytest.mark.parametrize("changes", [{}, MUTUAL], ids=["plain", "mutual"])
def test_metrics_on_the_network_are_warned_of_whatever_guards_the_rest(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    announce_protection(small_settings(metrics_host="0.0.0.0", **changes))
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("protection: whoever reaches 0.0.0.0 may read the metrics; let only")


async def test_a_broken_certificate_is_told_of_before_bundles_are_loaded(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    broken = small_settings(tmp_path / "no bundle", tls_certificate=made.certificate, tls_key=made.client_key)
    with pytest.raises(SettingsError, match=r"tls_key: .* is not the key of"):
        await serve(broken, lambda _: pytest.fail("it serves"))


async def test_settings_guard_both_ports(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = make_certificates(tmp_path)
    resolved = small_settings(
        write_bundle(tmp_path / "tiny"),
        **TOKENS,
        tls_certificate=made.certificate,
        tls_key=made.key,
        tls_client_ca=made.ca,
        client_limits={"ranker": 1},
        reflection=False,
    )
    trust = grpc.ssl_channel_credentials(
        made.ca.read_bytes(), made.client_key.read_bytes(), made.client_certificate.read_bytes()
    )
    codes: list[str] = []

    async def code_of(call: Any) -> None:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            codes.append(error.code().name)
        else:
            codes.append("OK")

    with caplog.at_level(logging.INFO):
        async with serving_here(resolved) as serving:
            for address in (serving.address, serving.admin_address):
                async with grpc.aio.secure_channel(address, trust) as channel:
                    recall, admin = recall_pb2_grpc.RecallServiceStub(channel), admin_pb2_grpc.AdminServiceStub(channel)
                    for token in (RANKER.token, OPERATOR.token, ""):
                        metadata = (("authorization", f"Bearer {token}"),)
                        await code_of(recall.Recall(by_history("item-001"), metadata=metadata))
                        await code_of(admin.ListBundles(admin_pb2.ListBundlesRequest(), metadata=metadata))
                async with grpc.aio.secure_channel(
                    address,
                    grpc.ssl_channel_credentials(made.ca.read_bytes()),
                    (("grpc.use_local_subchannel_pool", 1),),
                ) as channel:
                    await code_of(recall_pb2_grpc.RecallServiceStub(channel).Recall(by_history(), timeout=2))
    nobody = "UNIMPLEMENTED"
    assert codes == [
        *("OK", nobody, "PERMISSION_DENIED", nobody, "UNAUTHENTICATED", nobody, "UNAVAILABLE"),
        *(nobody, "PERMISSION_DENIED", nobody, "OK", nobody, "UNAUTHENTICATED", "UNAVAILABLE"),
    ]
    assert "protection: TLS on, client certificates on, 2 tokens" in caplog.text
    assert not any(secret in caplog.text for made in (RANKER, OPERATOR) for secret in (made.token, made.entry))
