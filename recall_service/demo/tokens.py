"""The vocabulary of the demo model: three special tokens, then one token for each code of each SID level.

The id of a SID token is its place in the vocabulary, so codes become token ids by adding an offset per level.
"""

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from item_catalog.sid import SidLayout

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
SPECIAL_TOKENS = (PAD, BOS, EOS)


def sid_token_templates(layout: SidLayout) -> tuple[str, ...]:
    """How the tokens of each level are written, first level first: "<a_{code}>", "<b_{code}>", ..."""
    return tuple(f"<{chr(ord('a') + level)}_{{code}}>" for level in range(layout.num_levels))


def vocabulary(layout: SidLayout) -> list[str]:
    """Every token; its place is its id."""
    tokens = list(SPECIAL_TOKENS)
    for template, size in zip(sid_token_templates(layout), layout.codebook_sizes, strict=True):
        tokens += [template.format(code=code) for code in range(size)]
    return tokens


def sid_token_ids(layout: SidLayout, sids: NDArray[np.integer]) -> NDArray[np.int64]:
    """SIDs int [n, levels] -> token ids int64 [n, levels]."""
    first_ids: NDArray[np.int64] = len(SPECIAL_TOKENS) + np.cumsum([0, *layout.codebook_sizes[:-1]])
    return sids.astype(np.int64) + first_ids


def make_tokenizer(layout: SidLayout) -> PreTrainedTokenizerFast:
    """A tokenizer that reads "<bos><a_1><b_2>" as three ids: every token is an added one, split off without spaces."""
    tokens = vocabulary(layout)
    tokenizer = Tokenizer(models.WordLevel({token: place for place, token in enumerate(tokens)}, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in tokens[len(SPECIAL_TOKENS) :]])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, bos_token=BOS, eos_token=EOS)
