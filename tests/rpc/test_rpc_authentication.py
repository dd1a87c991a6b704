"""Who may call: tokens, rights, and that nothing of a call that is not let in is read."""

import hashlib
import logging
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from recall_service.errors import PermissionDenied, Unauthenticated
from recall_service.rpc.authentication import Authentication, Right
from recall_service.tokens import make_token
from tests.rpc.fake_backend import FakeBackend, by_history, running

RANKER, OPERATOR, BOTH = (
    make_token("ranker", "recall"),
    make_token("operator", "admin"),
    make_token("all", "recall+admin"),
)
KNOWN = Authentication([made.entry for made in (RANKER, OPERATOR, BOTH)])

NO_PROTOBUF = b"\xff\xff\xff"


class Asked:
    """As much of a call's context as authentication looks at."""

    def __init__(self, *metadata: tuple[str, str], common_name: bytes | None = None) -> None:
        self.metadata = metadata
        self.common_name = common_name

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self.metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self.common_name is None else {"x509_common_name": [self.common_name]}


def admitted(authentication: Authentication, asked: Asked, right: Right = Right.RECALL) -> str:
    return authentication.admit(cast("grpc.aio.ServicerContext[Any, Any]", asked), right).name


def bearer(token: str, scheme: str = "Bearer") -> tuple[str, str]:
    return ("authorization", f"{scheme} {token}")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_known_token_gives_its_name(scheme: str) -> None:
    assert admitted(KNOWN, Asked(("x", "y"), bearer(RANKER.token, scheme))) == "ranker"
    assert admitted(KNOWN, Asked(bearer(OPERATOR.token, scheme)), Right.ADMIN) == "operator"


@pytest.mark.parametrize("right", list(Right))
def test_one_token_may_have_both_rights(right: Right) -> None:
    assert admitted(KNOWN, Asked(bearer(BOTH.token)), right) == "all"


@pytest.mark.parametrize(
    "asked",
    [
        Asked(),
        Asked(("authorization", "")),
        Asked(("authorization", RANKER.token)),
        Asked(("authorization", f"Basic {RANKER.token}")),
        Asked(bearer("")),
        Asked(bearer(RANKER.token[:-1])),
        Asked(bearer(RANKER.token + "x")),
        Asked(bearer(RANKER.entry.rpartition(":")[2])),
        Asked(bearer(RANKER.entry)),
        Asked(bearer("ü" * 5000)),
        Asked(bearer(RANKER.token), bearer(RANKER.token)),
        Asked(common_name=b"ranker"),
    ],
    ids=["none", "empty", "no scheme", "other scheme", "empty token", "shorter", "longer", "its digest", "its entry",
         "not ASCII", "two", "a certificate alone"],
)  # fmt: skip
def test_anything_else_is_refused_in_the_same_words(asked: Asked) -> None:
    with pytest.raises(Unauthenticated) as caught:
        admitted(KNOWN, asked)
    assert str(caught.value) == "no token that is known here; send the metadata authorization: Bearer <token>"


@pytest.mark.parametrize(("token", "right"), [(RANKER, Right.ADMIN), (OPERATOR, Right.RECALL)], ids=["admin", "recall"])
def test_a_right_is_not_the_other_one(token: Any, right: Right) -> None:
    with pytest.raises(PermissionDenied, match=f"has no right to {right}"):
        admitted(KNOWN, Asked(bearer(token.token)), right)


def test_without_tokens_everybody_may_and_only_a_certificate_gives_a_name() -> None:
    certified = Asked(bearer("whatever"), common_name="räuber".encode())
    assert admitted(Authentication(), certified, Right.ADMIN) == ""
    assert admitted(Authentication(by_certificate=True), certified) == "räuber"
    assert admitted(Authentication(by_certificate=True), Asked()) == ""


def test_a_token_is_random_and_its_entry_does_not_hold_it() -> None:
    first, second = make_token("a", "recall"), make_token("a", "recall")
    assert first.token != second.token
    assert len(first.token) >= 43
    assert first.entry == f"a:recall:{hashlib.sha256(first.token.encode()).hexdigest()}"


@pytest.mark.parametrize(
    ("metadata", "code", "reason"),
    [
        ((), "UNAUTHENTICATED", "unauthenticated"),
        ((bearer("wrong"),), "UNAUTHENTICATED", "unauthenticated"),
        ((bearer(OPERATOR.token),), "PERMISSION_DENIED", "permission_denied"),
    ],
    ids=["no token", "wrong token", "wrong right"],
)
@pytest.mark.parametrize("method", ["Recall", "BatchRecall", "GetServingInfo"])
async def test_what_a_stranger_sends_is_not_even_read(
    method: str, metadata: tuple[tuple[str, str], ...], code: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no protobuf, and nobody notices: not in any log either, where no token appears."""
    backend = FakeBackend()
    with caplog.at_level(logging.DEBUG):
        async with running(backend, authentication=KNOWN) as service:
            call = service.channel.unary_unary(f"/recall.v1.RecallService/{method}")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(NO_PROTOBUF, metadata=metadata)
    assert caught.value.code().name == code
    assert reason.upper() in str(rpc_status.from_call(caught.value))
    assert backend.queries == []
    assert service.observer.stages == []
    assert service.observer.rejections == [reason]
    assert service.observer.handled == [(method, code)]
    assert not any(made.token in caplog.text for made in (RANKER, OPERATOR))


async def test_who_may_is_answered_and_named_to_the_call_log() -> None:
    log = RememberingCallLog()
    async with running(FakeBackend(), authentication=KNOWN, call_log=log) as service:
        response = await service.stub.Recall(by_history(), metadata=(bearer(RANKER.token),))
    assert len(response.items) == 3
    assert [facts["client"] for facts in log.facts] == ["ranker"]


class RememberingCallLog:
    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []

    def ended(self, method: str, code_name: str, seconds: float, facts: Any) -> None:
        self.facts.append(facts())


async def test_health_and_reflection_need_no_token() -> None:
    async with running(FakeBackend(), authentication=KNOWN) as service:
        health = await health_pb2_grpc.HealthStub(service.channel).Check(health_pb2.HealthCheckRequest())
        stub = reflection_pb2_grpc.ServerReflectionStub(service.channel)
        asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
        services = [answer async for answer in stub.ServerReflectionInfo(iter(asked))]
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert len(services) == 1


async def test_reflection_can_be_left_out() -> None:
    async with running(FakeBackend(), reflection=False) as service:
        stub = reflection_pb2_grpc.ServerReflectionStub(service.channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")])).read()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stranger_learns_nothing_of_a_server_that_warms_up() -> None:
    async with running(FakeBackend(), serving=False, authentication=KNOWN) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.stub.Recall(by_history())
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
