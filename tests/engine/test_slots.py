"""Beam slots and context pages against models that count references."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.beams import BeamRows
from recall_service.engine.kv_cache import BeamSlots, ContextPages
from tests.oracles.path_decoder import path_config
from tests.oracles.slot_model import SlotModel

WHERE = (torch.float32, torch.device("cpu"))
STEPS, MAX_ROWS = 4, 6


@settings(derandomize=True, max_examples=100)
@given(data=st.data())
def test_set_difference_frees_what_reference_counts_free(data: st.DataObject) -> None:
    """O4, P18: rows begin, branch, merge and die in any order, in a pool of exactly the worst case."""
    num_slots = MAX_ROWS * STEPS
    slots, model = BeamSlots(path_config(8), num_slots, *WHERE), SlotModel(num_slots)
    for _ in range(data.draw(st.integers(1, 3), label="searches")):
        rows = BeamRows.root(WHERE[1]).gather(torch.zeros(data.draw(st.integers(1, MAX_ROWS), label="rows")).long())
        model.begin(len(rows))
        for _ in range(STEPS):
            allocated = slots.allocate(len(rows))
            assert allocated.tolist() == model.extend()
            rows = rows.with_own_slots(allocated)
            alive = st.integers(0, len(rows) - 1)
            parents = data.draw(st.lists(alive, max_size=MAX_ROWS), label="parents")
            rows = rows.gather(torch.tensor(parents, dtype=torch.int64))
            model.descend(parents)
            slots.keep_only(rows.slots)
            assert set(slots._used.nonzero().flatten().tolist()) == model.used
            if not parents:
                break
        model.descend([])
        slots.keep_only(torch.empty(0, dtype=torch.int64))
        assert slots.num_used == len(model.used) == 0


def test_a_slot_that_was_never_allocated_cannot_be_kept() -> None:
    slots = BeamSlots(path_config(8), 4, *WHERE)
    slots.allocate(2)
    with pytest.raises(AssertionError, match="never allocated"):
        slots.keep_only(torch.tensor([0, 3]))


def test_more_slots_than_are_free_is_a_fault_of_admission() -> None:
    slots = BeamSlots(path_config(8), 4, *WHERE)
    slots.allocate(3)
    with pytest.raises(AssertionError, match="admission"):
        slots.allocate(2)


@settings(derandomize=True, max_examples=60)
@given(data=st.data())
def test_pages_have_one_owner_at_a_time(data: st.DataObject) -> None:
    """Prompts come and go in any order; nobody's places overlap, and all pages come back."""
    pages = ContextPages(path_config(8), 7, 3, *WHERE)
    owned: list[list[int]] = []
    for _ in range(data.draw(st.integers(1, 12), label="operations")):
        prompt_len = data.draw(st.integers(1, 12), label="prompt_len")
        if pages.pages_for(prompt_len) <= pages.num_free:
            owned.append(pages.allocate(prompt_len))
            assert len(owned[-1]) * 3 >= prompt_len > (len(owned[-1]) - 1) * 3
            places = pages.places(owned[-1], prompt_len).tolist()
            assert [place // 3 for place in places] == [owned[-1][index // 3] for index in range(prompt_len)]
            assert [place % 3 for place in places] == [index % 3 for index in range(prompt_len)]
        elif owned:
            pages.release(owned.pop(data.draw(st.integers(0, len(owned) - 1), label="leaves")))
        held = [page for some in owned for page in some]
        assert len(held) == len(set(held)) == 7 - pages.num_free
    for some in owned:
        pages.release(some)
    assert pages.num_free == 7


def test_a_page_cannot_be_given_back_twice() -> None:
    pages = ContextPages(path_config(8), 2, 3, *WHERE)
    mine = pages.allocate(3)
    pages.release(mine)
    with pytest.raises(AssertionError, match="once"):
        pages.release(mine)
