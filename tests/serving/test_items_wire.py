"""Items as bytes say what the arrays say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.rpc.convert import encode_response
from recall_service.serving.cache.local_tier import resident_bytes
from recall_service.serving.items_wire import encode_items
from recall_service.serving.query import RecallAnswer
from recall_service.stubs.recall.v1.recall_pb2 import RecalledItem, RecallResponse
from tests.serving.cache_fakes import make_answer

ITEM_ID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)


@st.composite
def answers(draw: st.DrawFn) -> RecallAnswer:
    """Ids of up to 200 characters; codes and ranks of one to five bytes; scores of any size; one to four levels."""
    item_ids = tuple(draw(st.lists(ITEM_ID, max_size=20, unique=True)))
    shape = (len(item_ids), draw(st.integers(1, 4)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = -generator.random(len(item_ids)) * 10.0 ** generator.integers(-300, 300, len(item_ids))
    sids = (2.0 ** generator.uniform(0, 31, shape)).astype(np.int32) - 1
    with_steps = draw(st.booleans())
    log_probs = -generator.random(shape, np.float32) if with_steps else None
    ranks = sids + 1 if with_steps else None
    return replace(
        make_answer(),
        item_ids=item_ids,
        scores=scores,
        sids=sids,
        step_log_probs=log_probs,
        step_ranks=ranks,
        items_wire=encode_items(item_ids, scores, sids, log_probs, ranks),
    )


def items_of(answer: RecallAnswer) -> list[RecalledItem]:
    """The obvious way, element by element."""
    items = []
    for rank, item_id in enumerate(answer.item_ids):
        item = RecalledItem(item_id=item_id, score=float(answer.scores[rank]), sid=map(int, answer.sids[rank]))
        if answer.step_log_probs is not None and answer.step_ranks is not None:
            item.step_log_probs.extend(map(float, answer.step_log_probs[rank]))
            item.step_ranks.extend(map(int, answer.step_ranks[rank]))
        items.append(item)
    return items


@settings(max_examples=100)
@given(answers())
def test_any_answer_is_read_back_as_its_arrays(answer: RecallAnswer) -> None:
    response = RecallResponse.FromString(
        encode_response(answer, request_id="r", attribution_token="t", total_seconds=0.5)
    )
    assert list(response.items) == items_of(answer)
    assert (response.request_id, response.attribution_token, response.timings.total_us) == ("r", "t", 500_000)
    assert (response.bundle, response.beam_width, response.unknown_history_items) == ("demo", 40, 3)


@pytest.mark.parametrize("with_steps", [False, True])
def test_a_thousand_items_are_read_back(with_steps: bool) -> None:
    answer = make_answer(1_000, with_steps=with_steps)
    assert list(RecallResponse.FromString(answer.items_wire).items) == items_of(answer)


def test_arrays_of_different_lengths_are_a_fault() -> None:
    answer = make_answer(3)
    with pytest.raises(ValueError, match="zip"):
        encode_items(answer.item_ids, answer.scores[:2], answer.sids, None, None)


def test_the_cache_counts_the_bytes_it_keeps() -> None:
    answer = make_answer(50)
    assert resident_bytes(answer) - resident_bytes(replace(answer, items_wire=b"")) == len(answer.items_wire)
