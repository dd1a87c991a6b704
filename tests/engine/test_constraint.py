"""A trie on the device, speaking token ids, against plain sets of SIDs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.constraint import NO_TOKEN, TrieConstraint
from tests.oracles.tries import Catalogue, nodes_leading_to, trie_of


@settings(derandomize=True, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    count=st.integers(1, 60),
)
def test_children_are_those_of_the_sets_parent_by_parent_in_order_of_codes(
    seed: int, sizes: list[int], count: int
) -> None:
    """P23, on the device; levels may share token ids."""
    rng = np.random.default_rng(seed)
    catalogue = Catalogue.random(rng, tuple(sizes), count, 12)
    for level in range(catalogue.num_levels):
        prefixes = sorted({sid[:level] for sid in catalogue.sids})
        deeper = sorted({sid[: level + 1] for sid in catalogue.sids})
        nodes = rng.integers(0, len(prefixes), 7)  # repeats, in any order
        children = catalogue.constraint.children(level, torch.from_numpy(nodes))
        expected = [(row, sid) for row, node in enumerate(nodes) for sid in deeper if sid[:level] == prefixes[node]]
        assert children.parents.tolist() == [row for row, _ in expected]
        assert children.nodes.tolist() == [deeper.index(sid) for _, sid in expected]
        assert children.tokens.tolist() == [catalogue.level_tokens[level][sid[-1]] for _, sid in expected]
        assert children.counts.tolist() == [sum(sid[:level] == prefixes[node] for sid in deeper) for node in nodes]


def test_codes_beyond_fifteen_bits_keep_their_value() -> None:
    """In a codebook of 40,000, a code taken as negative would wrap to another code."""
    sids = {(32_767,), (32_768,), (39_999,)}
    tokens = np.arange(40_000, dtype=np.int64) + 5
    children = TrieConstraint(trie_of(sids, (40_000,)), [tokens]).children(0, torch.zeros(1, dtype=torch.int64))
    assert children.tokens.tolist() == [32_772, 32_773, 40_004]


def test_a_codebook_of_another_size_than_the_tries_is_refused() -> None:
    with pytest.raises(ValueError, match=r"level_tokens: sizes \(3,\); the trie's codebooks are \(4,\)"):
        TrieConstraint(trie_of({(1,)}, (4,)), [np.arange(3)])


def test_two_codes_with_one_token_are_refused() -> None:
    with pytest.raises(ValueError, match=r"level_tokens\[1\]: two codes share a token id"):
        TrieConstraint(trie_of({(0, 0)}, (2, 3)), [np.arange(2), np.array([4, 5, 4])])


def test_a_token_id_below_the_mark_for_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"level_tokens\[0\]: token id -2; ids are 0 and up"):
        TrieConstraint(trie_of({(0,)}, (2,)), [np.array([4, -2])])


def test_a_code_without_a_token_is_in_no_codebook_and_may_be_of_no_item() -> None:
    tokens = np.array([7, NO_TOKEN, 3, NO_TOKEN])
    constraint = TrieConstraint(trie_of({(0,), (2,)}, (4,)), [tokens])
    assert constraint.codebook(0).tolist() == [7, 3]
    assert constraint.children(0, torch.zeros(1, dtype=torch.int64)).tokens.tolist() == [7, 3]
    with pytest.raises(ValueError, match=r"level_tokens\[0\]: a code of the trie has no token; give it one"):
        TrieConstraint(trie_of({(0,), (3,)}, (4,)), [tokens])


@settings(derandomize=True, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 60),
    share_live=st.sampled_from([None, 0.0, 0.1, 0.5, 1.0]),
    share_dead=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_what_a_filter_drops_and_a_request_excludes_is_no_child(
    seed: int, count: int, share_live: float | None, share_dead: float
) -> None:
    """Against the sets, for rows that repeat, in any order; the constraint that it came from is untouched."""
    rng = np.random.default_rng(seed)
    catalogue = Catalogue.random(rng, (4, 3, 5), count, 12)
    leaves = sorted(catalogue.sids)
    kept = set(leaves) if share_live is None else {sid for sid in leaves if rng.random() < share_live}
    left = {sid for sid in kept if rng.random() >= share_dead}
    filtered = catalogue.constraint
    if share_live is not None:
        filtered = filtered.keeping(nodes_leading_to(kept, leaves))
    dead = [
        np.flatnonzero(was_live & ~is_live)
        for was_live, is_live in zip(nodes_leading_to(kept, leaves), nodes_leading_to(left, leaves), strict=True)
    ]
    narrowed = filtered.without(dead)
    assert narrowed.has_exclusions == (left != kept)
    assert not filtered.has_exclusions
    for level in range(3):
        prefixes, deeper = (sorted({sid[:depth] for sid in leaves}) for depth in (level, level + 1))
        nodes = rng.integers(0, len(prefixes), 9)
        for constraint, sids in ((narrowed, left), (filtered, kept), (catalogue.constraint, set(leaves))):
            alive = {sid[: level + 1] for sid in sids}
            expected = [
                (row, number, catalogue.level_tokens[level][sid[-1]])
                for row, node in enumerate(nodes)
                for number, sid in enumerate(deeper)
                if sid in alive and sid[:level] == prefixes[node]
            ]
            children = constraint.children(level, torch.from_numpy(nodes))
            found = zip(children.parents.tolist(), children.nodes.tolist(), children.tokens.tolist(), strict=True)
            assert list(found) == expected
            assert children.counts.tolist() == np.bincount([row for row, *_ in expected], minlength=9).tolist()


def small_constraint() -> TrieConstraint:
    return TrieConstraint(trie_of({(0, 0), (0, 1)}, (2, 2)), [np.arange(2), np.arange(2)])


def test_a_filter_of_another_catalogue_is_refused() -> None:
    with pytest.raises(ValueError, match=r"live_nodes: \(1, 3\) values; the trie has \(1, 2\) nodes below its root"):
        small_constraint().keeping([np.ones(1, np.bool_), np.ones(3, np.bool_)])


def test_exclusions_of_another_depth_are_refused() -> None:
    with pytest.raises(ValueError, match="dead_nodes: 3 levels; the trie has 2"):
        small_constraint().without([np.zeros(0, np.int64)] * 3)


def test_without_exclusions_a_constraint_is_itself_and_shared_by_all_requests() -> None:
    constraint = small_constraint()
    assert constraint.without([np.zeros(0, np.int64)] * 2) is constraint


def test_an_excluded_node_takes_all_below_it_along() -> None:
    """Its own children are asked for by nobody: no row can reach it."""
    sids = {(0, 0), (0, 1), (1, 0)}
    constraint = TrieConstraint(trie_of(sids, (2, 2)), [np.arange(2), np.arange(2)])
    narrowed = constraint.without([np.array([0]), np.zeros(0, np.int64)])
    assert narrowed.children(0, torch.zeros(1, dtype=torch.int64)).nodes.tolist() == [1]


def test_checks_of_a_large_trie_find_what_lies_behind_the_first_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The widest node, and a code without a token: blocks of two, so that both lie across them."""
    monkeypatch.setattr("recall_service.engine.constraint._BLOCK", 2)
    sids = {(0, 0), (1, 0), (2, 1), (3, 0), (3, 1), (3, 3)}
    tokens = [np.arange(4), np.arange(4)]
    constraint = TrieConstraint(trie_of(sids, (4, 4)), tokens)
    assert [constraint.level_arrays(level).max_children for level in range(2)] == [4, 3]
    with pytest.raises(ValueError, match=r"level_tokens\[1\]: a code of the trie has no token; give it one"):
        TrieConstraint(trie_of(sids, (4, 4)), [tokens[0], np.array([0, 1, 2, NO_TOKEN])])
    assert TrieConstraint(trie_of(sids, (4, 4)), [tokens[0], np.array([0, 1, NO_TOKEN, 3])]).max_token == 3
