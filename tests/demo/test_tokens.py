"""Every token of the demo's vocabulary is one id, written together or apart."""

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from item_catalog.sid import SidLayout
from recall_service.demo.tokens import make_tokenizer, sid_token_ids, sid_token_templates, vocabulary

LAYOUT = SidLayout((4, 300, 2))


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer(LAYOUT)


def test_the_vocabulary_is_specials_then_levels() -> None:
    tokens = vocabulary(LAYOUT)
    assert tokens[:4] == ["<pad>", "<bos>", "<eos>", "<a_0>"]
    assert tokens[3 + 4] == "<b_0>"
    assert tokens[-1] == "<c_1>"
    assert len(tokens) == len(set(tokens)) == 3 + 4 + 300 + 2
    assert sid_token_templates(LAYOUT) == ("<a_{code}>", "<b_{code}>", "<c_{code}>")


def test_every_token_is_its_place(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = vocabulary(LAYOUT)
    assert tokenizer.convert_tokens_to_ids(tokens) == list(range(len(tokens)))
    assert [tokenizer.encode(token) for token in tokens] == [[place] for place in range(len(tokens))]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)


@pytest.mark.parametrize("separator", ["", " "], ids=["together", "apart"])
def test_a_history_splits_into_its_tokens(tokenizer: PreTrainedTokenizerFast, separator: str) -> None:
    text = separator.join(["<bos>", "<a_1>", "<b_29>", "<c_0>", "<a_3>", "<b_299>", "<c_1>"])
    sids = np.array([[1, 29, 0], [3, 299, 1]])
    assert tokenizer.encode(text) == [1, *sid_token_ids(LAYOUT, sids).ravel().tolist()]
