"""Values of the shared cache: whoever can write to Redis can write anything under any key."""

import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from recall_service.rpc.convert import encode_response
from recall_service.serving.cache.answer_codec import decode, encode
from recall_service.stubs.recall.v1 import cache_pb2
from tests.fuzz.hostile import Broken, Hostile
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_messages import mutate_message
from tests.fuzz.odd_values import FLOATS, odd_integer
from tests.serving.cache_fakes import make_answer

_KEY = bytes(range(32))
_ARRAYS = {"scores": "<f8", "sids": "<i4", "step_log_probs": "<f4", "step_ranks": "<i4"}


class Target:
    """Whatever the bytes: no answer, or one that is whole and can be sent to a caller."""

    def __init__(self, directory: Path) -> None:
        answers = [make_answer(num_items, with_steps=steps) for num_items in (1, 5, 30) for steps in (False, True)]
        self._values = [encode(answer, _KEY) for answer in answers]

    def make(self, generator: random.Random) -> Hostile:
        value, other = generator.choice(self._values), generator.choice(self._values)
        if generator.random() < 0.3:
            return Hostile("value", mutate_bytes(generator, value, other))
        envelope = cache_pb2.CachedAnswer.FromString(value)
        payload = cache_pb2.CachedPayload.FromString(envelope.payload)
        if generator.random() < 0.5:
            _spoil_array(generator, payload)
        else:
            payload = mutate_message(generator, payload)
        # The checksum is right: damage is found by it, a foreign writer is not.
        envelope.payload = payload.SerializeToString()
        envelope.payload_checksum = xxh3_64_intdigest(envelope.payload)
        if generator.random() < 0.1:
            envelope = mutate_message(generator, envelope)
        return Hostile("value", envelope.SerializeToString())

    def check(self, hostile: Hostile) -> None:
        stored = decode(hostile.data, _KEY)
        if stored is None:
            return
        answer = stored.answer
        lengths = {len(answer.item_ids), len(answer.scores), len(answer.sids)}
        if len(lengths) != 1 or 0 in lengths:
            raise Broken(f"an answer of lengths {lengths}")
        if not np.isfinite(answer.scores).all():
            raise Broken("an answer with a score that is no number")
        encode_response(answer, request_id="r", attribution_token="a", total_seconds=0.0)

    def close(self) -> None:
        pass


def _spoil_array(generator: random.Random, payload: cache_pb2.CachedPayload) -> None:
    name = generator.choice(list(_ARRAYS))
    values: NDArray[np.generic] = np.frombuffer(getattr(payload, name), _ARRAYS[name]).copy()
    if len(values):
        at = generator.randrange(len(values))
        is_real = _ARRAYS[name][1] == "f"
        with np.errstate(over="ignore"):
            values[at] = generator.choice(FLOATS) if is_real else odd_integer(generator) % 2**32 - 2**31
    setattr(payload, name, values.tobytes())
