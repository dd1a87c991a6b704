"""The answer to a batch, joined by hand, is what protobuf would have written; and nothing of it is parsed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.rpc.batch_wire import Outcome, encode_batch
from recall_service.stubs.recall.v1 import recall_pb2
from tests.rpc.fake_backend import FakeBackend, by_history, running

# Of all lengths at which a header grows: below and above 2^7, 2^14 and 2^21 bytes.
LENGTH = st.integers(0, 300) | st.integers(16_300, 16_500) | st.integers(2_097_100, 2_097_200)
RESPONSE = LENGTH.map(lambda length: recall_pb2.RecallResponse(request_id="x" * length))
FAILURE = LENGTH.map(lambda length: recall_pb2.RecallFailure(code=8, message="y" * length, limit="memory"))


def as_protobuf_does(messages: list[recall_pb2.RecallResponse | recall_pb2.RecallFailure]) -> bytes:
    response = recall_pb2.BatchRecallResponse()
    for message in messages:
        if isinstance(message, recall_pb2.RecallFailure):
            response.results.add(failure=message)
        else:
            response.results.add(response=message)
    return response.SerializeToString()


@settings(max_examples=200)
@given(st.lists(RESPONSE | FAILURE, max_size=6))
def test_any_batch_is_what_protobuf_writes(
    messages: list[recall_pb2.RecallResponse | recall_pb2.RecallFailure],
) -> None:
    outcomes: list[Outcome] = [
        message if isinstance(message, recall_pb2.RecallFailure) else message.SerializeToString()
        for message in messages
    ]
    assert encode_batch(outcomes) == as_protobuf_does(messages)


async def test_an_answer_of_a_batch_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever bytes the answer is made of are those that travel: here a field twice, which protobuf writes once."""
    made = b"".join(recall_pb2.RecallResponse(request_id=text).SerializeToString() for text in ("first", "second"))
    monkeypatch.setattr("recall_service.rpc.servicer.encode_response", lambda *_, **__: made)
    request = recall_pb2.BatchRecallRequest(requests=[by_history()]).SerializeToString()
    async with running(FakeBackend()) as service:
        batch = await service.channel.unary_unary("/recall.v1.RecallService/BatchRecall")(request)
    assert batch.endswith(made)
