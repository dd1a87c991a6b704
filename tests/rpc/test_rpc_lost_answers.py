"""What is logged of answers that nobody waits for any more."""

import logging
from collections.abc import Iterator

import pytest
from grpc._cython import cygrpc

from recall_service.rpc import lost_answers
from recall_service.rpc.lost_answers import quiet_lost_answers

GRPC = logging.getLogger("grpc._cython.cygrpc")


@pytest.fixture
def quiet() -> Iterator[None]:
    quiet_lost_answers()
    yield
    GRPC.removeFilter(lost_answers._is_worth_a_line)


def log_as_grpc_does(error: Exception) -> None:
    GRPC.error("%s raised in core by servicer method", type(error).__name__, exc_info=error)


@pytest.mark.usefixtures("quiet")
def test_a_lost_answer_is_not_a_line_and_any_other_fault_is(caplog: pytest.LogCaptureFixture) -> None:
    log_as_grpc_does(cygrpc.ExecuteBatchError("lost"))
    log_as_grpc_does(cygrpc.InternalError("of gRPC"))
    GRPC.error("without an exception")
    assert [record.getMessage() for record in caplog.records] == [
        "InternalError raised in core by servicer method",
        "without an exception",
    ]
