import pytest
from hypothesis import given
from hypothesis import strategies as st

from item_catalog.filtering.filters import Filter, IsIn, NotIn
from recall_service.engine.request import ScoreSpace, SearchMode
from recall_service.serving.cache.cache_key import DIGEST_BYTES, cache_key

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
        {"wanted": Filter((IsIn("stock", (1,)),))},
        {"exclude_item_ids": ("a",)},
        {"exclude_history": True},
    ],
    ids=str,
)
def test_every_part_of_a_question_changes_its_key(change: dict[str, object]) -> None:
    assert cache_key(**(QUESTION | change)) != cache_key(**QUESTION)


def test_equal_questions_share_a_key() -> None:
    again = QUESTION | {"history": ["a", "b", "c"]}  # a list, and made anew
    assert cache_key(**again) == cache_key(**QUESTION)
    assert len(cache_key(**QUESTION)) == DIGEST_BYTES


NARROWED = {"wanted": Filter((IsIn("stock", (1,)),)), "exclude_item_ids": ("x", "y"), "exclude_history": True}


@pytest.mark.parametrize(
    "change",
    [
        *(
            {name: default}
            for name, default in [("wanted", None), ("exclude_item_ids", ()), ("exclude_history", False)]
        ),
        {"wanted": Filter((IsIn("stock", (1.0,)),))},
        {"wanted": Filter((IsIn("stock", (True,)),))},
        {"wanted": Filter((IsIn("stock", ("1",)),))},
        {"wanted": Filter((NotIn("stock", (1,)),))},
        {"wanted": Filter((IsIn("stock", (1,)), IsIn("price", (1,))))},
        {"exclude_item_ids": ("x",)},
        {"exclude_item_ids": ("xy",)},
        {"exclude_item_ids": ("x", "y", "")},
        {"history": ("a", "b", "c", "x"), "exclude_item_ids": ("y",)},
    ],
    ids=str,
)
def test_every_part_of_what_is_left_out_changes_the_key(change: dict[str, object]) -> None:
    narrowed = QUESTION | NARROWED
    assert cache_key(**(narrowed | change)) != cache_key(**narrowed)


def test_a_meaning_has_one_key_however_it_is_put() -> None:
    one = NARROWED | {"wanted": Filter((IsIn("stock", (1, 2)), NotIn("brand", ("a", "b"))))}
    other = {
        "wanted": Filter((NotIn("brand", ("b", "a", "b")), IsIn("stock", (2, 1)))),
        "exclude_item_ids": ["y", "x", "y"],
        "exclude_history": True,
    }
    assert cache_key(**(QUESTION | one)) == cache_key(**(QUESTION | other))


@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4))
def test_exclusions_share_a_key_only_when_equal(one: list[str], other: list[str]) -> None:
    keys = [cache_key(**(QUESTION | {"exclude_item_ids": excluded})) for excluded in (one, other)]
    assert (keys[0] == keys[1]) == (set(one) == set(other))


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
