"""The answer to a batch as bytes, joined from those of its answers, which are neither read nor written again."""

from collections.abc import Sequence

from recall_service.stubs.recall.v1.recall_pb2 import BatchRecallResponse, BatchRecallResult, RecallFailure

# A serialised RecallResponse, or why there is none.
Outcome = bytes | RecallFailure

_LENGTH_DELIMITED = 2  # protobuf's wire type of a field that is a message


def encode_batch(outcomes: Sequence[Outcome]) -> bytes:
    """The serialised BatchRecallResponse of `outcomes`, in their order."""
    parts: list[bytes] = []
    for outcome in outcomes:
        if isinstance(outcome, RecallFailure):
            body = outcome.SerializeToString()
            header = _header(BatchRecallResult.FAILURE_FIELD_NUMBER, len(body))
        else:
            body = outcome
            header = _header(BatchRecallResult.RESPONSE_FIELD_NUMBER, len(body))
        parts += (_header(BatchRecallResponse.RESULTS_FIELD_NUMBER, len(header) + len(body)), header, body)
    return b"".join(parts)


def _header(field_number: int, length: int) -> bytes:
    """What stands before a message of `length` bytes in the field of another."""
    return _varint(field_number << 3 | _LENGTH_DELIMITED) + _varint(length)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
