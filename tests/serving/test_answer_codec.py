from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from recall_service.serving.cache.answer_codec import FORMAT_VERSION, decode, encode
from recall_service.serving.query import ServedFrom, ShortReason, Timings
from recall_service.stubs.recall.v1 import cache_pb2
from tests.serving.cache_fakes import make_answer, stored_part

KEY = bytes(range(32))


@pytest.mark.parametrize("with_steps", [False, True], ids=["plain", "with_steps"])
@pytest.mark.parametrize("num_items", [1, 50])
def test_an_answer_comes_back_whole(num_items: int, *, with_steps: bool) -> None:
    answer = make_answer(num_items, with_steps=with_steps)
    back = decode(encode(answer, KEY), KEY)
    assert back is not None
    assert stored_part(back.answer) == stored_part(answer)
    assert back.answer.served_from is ServedFrom.SHARED_CACHE
    assert (back.answer.rows_forwarded, back.answer.timings) == (0, Timings())


def test_what_comes_back_cannot_be_written_into() -> None:
    back = decode(encode(make_answer(with_steps=True), KEY), KEY)
    assert back is not None
    with pytest.raises(ValueError, match="read-only"):
        back.answer.scores[0] = 0.0


@pytest.mark.parametrize("stamp", [0, 1, 1_800_000_000_000, 2**64 - 1])
def test_until_when_it_is_fresh_comes_back(stamp: int) -> None:
    back = decode(encode(make_answer(), KEY, stamp), KEY)
    assert back is not None
    assert back.fresh_until_unix_ms == stamp


def test_a_short_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="beam_too_narrow"):
        encode(make_answer(short_reason=ShortReason.BEAM_TOO_NARROW), KEY)


def test_a_value_under_another_key_is_a_miss() -> None:
    assert decode(encode(make_answer(), KEY), KEY[::-1]) is None


@pytest.mark.parametrize("format_version", [0, FORMAT_VERSION + 1])
def test_another_format_is_a_miss(format_version: int) -> None:
    envelope = cache_pb2.CachedAnswer.FromString(encode(make_answer(), KEY))
    envelope.format_version = format_version
    assert decode(envelope.SerializeToString(), KEY) is None


def _with_nan(payload: cache_pb2.CachedPayload) -> None:
    payload.scores = np.full(5, np.nan).tobytes()


def _with_infinite_steps(payload: cache_pb2.CachedPayload) -> None:
    payload.step_log_probs = np.full((5, 4), -np.inf, np.float32).tobytes()


CORRUPTIONS: dict[str, Callable[[cache_pb2.CachedPayload], object]] = {
    "fewer scores": lambda payload: setattr(payload, "scores", payload.scores[8:]),
    "half a score": lambda payload: setattr(payload, "scores", payload.scores[4:]),
    "more sids": lambda payload: setattr(payload, "sids", payload.sids + payload.sids),
    "other levels": lambda payload: setattr(payload, "num_levels", 5),
    "no levels": lambda payload: setattr(payload, "num_levels", 0),
    "levels past memory": lambda payload: setattr(payload, "num_levels", 2**32 - 1),
    "no items": lambda payload: payload.Clear(),
    "one item fewer": lambda payload: payload.item_ids.pop(),
    "nan score": _with_nan,
    "infinite step": _with_infinite_steps,
    "steps without ranks": lambda payload: setattr(payload, "step_ranks", b""),
    "ranks without steps": lambda payload: setattr(payload, "step_log_probs", b""),
    "more proven than items": lambda payload: setattr(payload, "proven_count", 6),
    "unknown score space": lambda payload: setattr(payload, "score_space", "PERPLEXITY"),
}


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS.keys())
def test_a_payload_that_contradicts_itself_is_a_miss(corrupt: Callable[[cache_pb2.CachedPayload], object]) -> None:
    """Even when its checksum is right: an older or a foreign writer may have meant it."""
    envelope = cache_pb2.CachedAnswer.FromString(encode(make_answer(with_steps=True), KEY))
    payload = cache_pb2.CachedPayload.FromString(envelope.payload)
    corrupt(payload)
    envelope.payload = payload.SerializeToString()
    envelope.payload_checksum = xxh3_64_intdigest(envelope.payload)
    assert decode(envelope.SerializeToString(), KEY) is None


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_flipped_bit_never_changes_an_answer(position: int, bit: int) -> None:
    answer = make_answer()
    value = bytearray(encode(answer, KEY))
    value[position % len(value)] ^= 1 << bit
    back = decode(bytes(value), KEY)
    assert back is None or stored_part(back.answer) == stored_part(answer)


@given(st.binary(max_size=200))
def test_garbage_is_a_miss(value: bytes) -> None:
    assert decode(value, KEY) is None


def test_a_truncated_value_is_a_miss() -> None:
    value = encode(make_answer(), KEY)
    assert [decode(value[:end], KEY) for end in range(0, len(value), 7)] == [None] * len(range(0, len(value), 7))
