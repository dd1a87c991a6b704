"""Prompts put together from arrays are what the tokenizer makes of the whole text."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recall_service.errors import BundleError
from recall_service.serving.bundles.bundle_file import PromptSection
from recall_service.serving.bundles.prompt import PromptTemplate, check_template, make_template
from recall_service.serving.bundles.sid_tokens import sid_token_ids
from recall_service.serving.bundles.text_encoder import HuggingFaceEncoder, TextEncoder
from tests.serving.bundles import LAYOUT, TOKEN_TEMPLATES, VOCAB_SIZE, byte_tokenizer, small_catalog

BOS = 258
GLUE = st.lists(st.sampled_from(["<bos>", "t", "th", "the", "he", " ", "e", "ö", "\n", "<a_", "0>"]), max_size=4).map(
    "".join
)
SIDS = st.lists(st.tuples(*(st.integers(0, size - 1) for size in LAYOUT.codebook_sizes)), max_size=5)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    directory: Path = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer().save_pretrained(directory)
    return HuggingFaceEncoder(directory)


def template_of(encoder: TextEncoder, **fields: object) -> PromptTemplate:
    level_tokens = sid_token_ids(encoder, TOKEN_TEMPLATES, small_catalog().trie, VOCAB_SIZE)
    return make_template(PromptSection(**fields), encoder, level_tokens, VOCAB_SIZE)


def as_array(sids: Sequence[tuple[int, ...]]) -> NDArray[np.int32]:
    return np.array(sids, np.int32).reshape(-1, LAYOUT.num_levels)


def sid_text(sid: Sequence[int]) -> str:
    return "".join(text.replace("{code}", str(code)) for text, code in zip(TOKEN_TEMPLATES, sid, strict=True))


@settings(max_examples=60)
@given(prefix=GLUE, before=GLUE, after=GLUE, separator=GLUE, suffix=GLUE, sids=SIDS)
def test_pieces_equal_the_whole_text(
    encoder: TextEncoder,
    prefix: str,
    before: str,
    after: str,
    separator: str,
    suffix: str,
    sids: list[tuple[int, ...]],
) -> None:
    """Glue of any text, even such as merges with its neighbour or ends like a SID token begins."""
    item = f"{before}{{sid}}{after}"
    template = template_of(encoder, prefix=prefix, item=item, separator=separator, suffix=suffix)
    text = prefix + separator.join(item.replace("{sid}", sid_text(sid)) for sid in sids) + suffix
    prompt = template.build(as_array(sids))
    assert prompt.tolist() == encoder.encode(text)
    assert template.length(len(sids)) == len(prompt)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [260, 264, 268, 261, 265, 269]),
        ({"prefix": [1, 2], "separator": [3], "suffix": [4]}, [1, 2, 260, 264, 268, 3, 261, 265, 269, 4]),
        ({"prefix": "<bos>", "separator": [3, 3]}, [BOS, 260, 264, 268, 3, 3, 261, 265, 269]),
        ({"prefix": [BOS], "item": "t{sid}", "separator": "e"}, [BOS, 83, 260, 264, 268, 68, 83, 261, 265, 269]),
        ({"prefix": "t", "item": "he{sid}"}, [257, 260, 264, 268, 71, 68, 261, 265, 269]),
        ({"prefix": [83], "item": "he{sid}"}, [83, 71, 68, 260, 264, 268, 71, 68, 261, 265, 269]),
    ],
    ids=["bare", "ids", "text and ids", "ids and text", "texts merge", "ids never merge"],
)
def test_glue_of_text_and_of_ids(encoder: TextEncoder, fields: dict[str, object], expected: list[int]) -> None:
    """Token ids: <bos> 258, <a_0> 259, <b_0> 263, <c_0> 268; bytes of "t" 83, "h" 71, "e" 68; "the" 257."""
    assert template_of(encoder, **fields).build(as_array([(1, 1, 0), (2, 2, 1)])).tolist() == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"prefix": "<bos>", "suffix": "the"}, [BOS, 257]), ({"prefix": "t", "suffix": "he"}, [257]), ({}, [])],
    ids=["glue", "texts merge", "nothing"],
)
def test_the_prompt_of_an_empty_history(encoder: TextEncoder, fields: dict[str, object], expected: list[int]) -> None:
    template = template_of(encoder, item=" {sid} ", separator=",", **fields)
    assert template.build(as_array([])).tolist() == expected
    assert template.length(0) == len(expected)


class GluttonousEncoder:
    """Like tokenizers whose SID tokens swallow the space before them."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder

    def encode(self, text: str) -> list[int]:
        return self._encoder.encode(text.replace(" <", "<"))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]


def test_a_tokenizer_that_joins_glue_and_sid_is_found_at_load(encoder: TextEncoder) -> None:
    section = PromptSection(prefix="<bos>", item=" {sid}")
    greedy = GluttonousEncoder(encoder)
    template = template_of(greedy, prefix="<bos>", item=" {sid}")
    sids = small_catalog().trie.leaf_sids([0, 7])
    check_template(template_of(encoder, prefix="<bos>", item=" {sid}"), section, encoder, TOKEN_TEMPLATES, sids)
    with pytest.raises(BundleError, match=r"prompt: the tokenizer joins SID tokens .* give prefix, separator and"):
        check_template(template, section, greedy, TOKEN_TEMPLATES, sids)
