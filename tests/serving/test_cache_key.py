import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_service.engine.request import ScoreSpace, SearchMode
from recall_service.serving.cache_key import DIGEST_BYTES, cache_key

QUESTION = {
    "bundle": "demo",
    "bundle_version": "1",
    "catalog_version": "2026-01-01",
    "score_space": ScoreSpace.CATALOG,
    "beam_width": 100,
    "num_items": 50,
    "search_mode": SearchMode.BEAM,
    "include_steps": False,
    "history": ("a", "b", "c"),
}


@pytest.mark.parametrize(
    "change",
    [
        {"bundle": "demo2"},
        {"bundle_version": "2"},
        {"catalog_version": "2026-01-02"},
        {"score_space": ScoreSpace.CODEBOOK},
        {"beam_width": 101},
        {"num_items": 51},
        {"search_mode": SearchMode.PROVEN},
        {"include_steps": True},
        {"history": ("a", "b")},
        {"history": ("a", "b", "d")},
        {"history": ("c", "b", "a")},
        {"history": ("ab", "c")},
        {"history": ("a", "b", "c", "")},
        {"history": ()},
        {"history": None, "prompt": (1, 2, 3)},
        {"bundle": "demo1", "bundle_version": ""},
        {"beam_width": 50, "num_items": 100},
    ],
    ids=str,
)
def test_every_part_of_a_question_changes_its_key(change: dict[str, object]) -> None:
    assert cache_key(**(QUESTION | change)) != cache_key(**QUESTION)


def test_equal_questions_share_a_key() -> None:
    again = QUESTION | {"history": ["a", "b", "c"]}  # a list, and made anew
    assert cache_key(**again) == cache_key(**QUESTION)
    assert len(cache_key(**QUESTION)) == DIGEST_BYTES


@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4))
def test_histories_share_a_key_only_when_equal(one: list[str], other: list[str]) -> None:
    keys = [cache_key(**(QUESTION | {"history": history})) for history in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


@given(st.lists(st.integers(0, 300_000), max_size=4), st.lists(st.integers(0, 300_000), max_size=4))
def test_prompts_share_a_key_only_when_equal(one: list[int], other: list[int]) -> None:
    keys = [cache_key(**(QUESTION | {"history": None, "prompt": prompt})) for prompt in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


@pytest.mark.parametrize("context", [{"history": None}, {"prompt": (1,)}], ids=["neither", "both"])
def test_a_question_is_a_history_or_a_prompt(context: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="exactly one of history and prompt"):
        cache_key(**(QUESTION | context))
