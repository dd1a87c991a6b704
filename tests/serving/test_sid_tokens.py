"""Codes to token ids, by encoders that behave and encoders that do not."""

import tracemalloc
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from item_catalog.sid import SidLayout
from item_catalog.trie import PrefixTrie
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from recall_service.engine import constraint
from recall_service.engine.constraint import NO_TOKEN
from recall_service.errors import BundleError
from recall_service.serving.bundles.sid_tokens import check_tokens, sid_token_ids, token_violations

TEMPLATES = ("<a_{code}>", "<b_{code}>")
TRIE = PrefixTrie.from_sorted_sids(SidLayout((3, 4)), np.array([[0, 1], [0, 3], [2, 0]]))  # never 1, never 2


class TableEncoder:
    """Knows the tokens of its table; any other text is `unknown`."""

    def __init__(self, table: Mapping[str, int], unknown: Sequence[int]) -> None:
        self._table, self._unknown = table, unknown

    def encode(self, text: str) -> list[int]:
        return [self._table[text]] if text in self._table else list(self._unknown)

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]


def table(**changes: int | None) -> dict[str, int]:
    """<a_0> is 10, <b_0> is 20; `changes` by name as a_0, None to leave a token out."""
    ids: dict[str, int | None] = {f"a_{code}": 10 + code for code in range(3)}
    ids |= {f"b_{code}": 20 + code for code in range(4)}
    return {f"<{name}>": token for name, token in (ids | changes).items() if token is not None}


def test_ids_by_level_and_code() -> None:
    levels = sid_token_ids(TableEncoder(table(), [0]), TEMPLATES, TRIE, vocab_size=24)
    assert [tokens.tolist() for tokens in levels] == [[10, 11, 12], [20, 21, 22, 23]]
    assert all(tokens.dtype == np.int64 for tokens in levels)


def test_levels_may_share_their_tokens() -> None:
    levels = sid_token_ids(TableEncoder({f"<{code}>": code for code in range(4)}, []), ("<{code}>",) * 2, TRIE, 24)
    assert [tokens.tolist() for tokens in levels] == [[0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("unknown", [[0], [0, 1], []], ids=["one id", "two ids", "no ids"])
def test_codes_that_no_sid_uses_may_lack_a_token(unknown: list[int]) -> None:
    levels = sid_token_ids(TableEncoder(table(a_1=None, b_2=99), unknown), TEMPLATES, TRIE, vocab_size=24)
    assert [tokens.tolist() for tokens in levels] == [[10, NO_TOKEN, 12], [20, 21, NO_TOKEN, 23]]


@pytest.mark.parametrize(
    ("changes", "unknown", "message"),
    [
        ({"a_2": None}, [7, 8], r"sid.tokens\[0\]: '<a_2>' is 2 tokens \[7, 8\]; .* exactly one id"),
        ({"a_2": None}, [], r"sid.tokens\[0\]: '<a_2>' is 0 tokens \[\]"),
        ({"a_2": None}, [7], r"sid.tokens\[0\]: '<a_2>' is id 7, which other text shares"),
        ({"a_1": None, "a_2": None}, [7], r"sid.tokens\[0\]: '<a_2>' is id 7, which other text shares"),
        ({"b_3": 20}, [7], r"sid.tokens\[1\]: '<b_0>' is id 20, which other text shares"),
        ({"b_3": 24}, [7], r"sid.tokens\[1\]: '<b_3>' is id 24, beyond the head's 24 rows; .* resize the model"),
    ],
    ids=["two tokens", "no token", "one unknown", "several unknown", "two codes of one id", "beyond the head"],
)
def test_a_used_code_must_be_one_id_of_its_own(
    changes: dict[str, int | None], unknown: list[int], message: str
) -> None:
    with pytest.raises(BundleError, match=message):
        sid_token_ids(TableEncoder(table(**changes), unknown), TEMPLATES, TRIE, vocab_size=24)


@pytest.mark.parametrize("templates", [TEMPLATES[:1], (*TEMPLATES, "<c_{code}>")], ids=["too few", "too many"])
def test_one_template_for_each_level(templates: tuple[str, ...]) -> None:
    with pytest.raises(BundleError, match=rf"sid.tokens: {len(templates)} levels; the catalogue's SIDs have 2"):
        sid_token_ids(TableEncoder(table(), [0]), templates, TRIE, vocab_size=24)


def test_another_trie_may_use_the_codes_that_have_tokens_and_no_others() -> None:
    level_tokens = sid_token_ids(TableEncoder(table(a_1=None), [0]), TEMPLATES, TRIE, vocab_size=24)
    layout = SidLayout((3, 4))
    check_tokens(level_tokens, TEMPLATES, PrefixTrie.from_sorted_sids(layout, np.array([[0, 2], [2, 2]])))
    lacking = PrefixTrie.from_sorted_sids(layout, np.array([[0, 2], [1, 2]]))
    with pytest.raises(BundleError, match=r"sid.tokens\[0\]: '<a_1>' is no token of the model; give the items of"):
        check_tokens(level_tokens, TEMPLATES, lacking)


def test_a_large_trie_is_looked_at_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraint, "_BLOCK", 1024)
    num_leaves = 200_000
    sids = np.stack(np.divmod(np.arange(num_leaves), 1000), axis=1)
    trie = PrefixTrie.from_sorted_sids(SidLayout((200, 1001)), sids)
    level_tokens = (np.arange(200), np.append(np.arange(1000), NO_TOKEN))
    tracemalloc.start()
    check_tokens(level_tokens, TEMPLATES, trie)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < num_leaves / 2


def test_updates_that_the_model_has_no_tokens_for() -> None:
    level_tokens = sid_token_ids(TableEncoder(table(a_1=None), [0]), TEMPLATES, TRIE, vocab_size=24)
    sids = [(0, 2), None, (1, 0), (9, 0), (1,), (1, 0, 5)]
    updates = ItemUpdates(tuple(ItemUpsert(str(row), sid) for row, sid in enumerate(sids)))
    assert [violation.field for violation in token_violations(updates, level_tokens)] == [
        f"upserts[{row}].sid[0]" for row in (2, 4, 5)
    ]
