"""The token ids of semantic IDs: every code of every level must be exactly one token of the model."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from item_catalog.trie import PrefixTrie
from recall_service.engine.constraint import NO_TOKEN
from recall_service.errors import BundleError
from recall_service.serving.text_encoder import TextEncoder


def sid_token_ids(
    encoder: TextEncoder, templates: Sequence[str], trie: PrefixTrie, vocab_size: int
) -> tuple[NDArray[np.int64], ...]:
    """Per level, the token id of every code, int64 [codebook_size]; NO_TOKEN for unused codes the model lacks.

    Raises BundleError when levels disagree, or a code that the catalogue uses is not one token below vocab_size.
    """
    if len(templates) != trie.num_levels:
        raise BundleError(
            f"sid.tokens: {len(templates)} levels; the catalogue's SIDs have {trie.num_levels}: give one template each"
        )
    return tuple(_level_ids(encoder, template, level, trie, vocab_size) for level, template in enumerate(templates))


def _level_ids(encoder: TextEncoder, template: str, level: int, trie: PrefixTrie, vocab_size: int) -> NDArray[np.int64]:
    size = trie.layout.codebook_sizes[level]
    used = np.zeros(size, bool)
    used[trie.codes[level]] = True
    token_ids = np.full(size, NO_TOKEN, np.int64)
    texts = [template.replace("{code}", str(code)) for code in range(size)]
    for code, (text, encoded) in enumerate(zip(texts, encoder.encode_many(texts), strict=True)):
        if len(encoded) == 1 and encoded[0] < vocab_size:
            token_ids[code] = encoded[0]
        elif used[code]:
            beyond = f"id {encoded[0]}, beyond the head's {vocab_size} rows" if len(encoded) == 1 else ""
            problem = beyond or f"{len(encoded)} tokens {encoded}"
            raise BundleError(
                f"sid.tokens[{level}]: {text!r} is {problem}; each SID token must be exactly one id of the model: "
                "add it to the tokenizer and resize the model, or correct the template"
            )
    return _without_unknown(token_ids, used, template, level)


def _without_unknown(
    token_ids: NDArray[np.int64], used: NDArray[np.bool_], template: str, level: int
) -> NDArray[np.int64]:
    """A tokenizer maps all text it does not know to one id: ids that several codes share are no SID tokens."""
    known, counts = np.unique(token_ids[token_ids != NO_TOKEN], return_counts=True)
    shared = np.isin(token_ids, known[counts > 1])
    if (shared & used).any():
        code = int(np.flatnonzero(shared & used)[0])
        text = template.replace("{code}", str(code))
        raise BundleError(
            f"sid.tokens[{level}]: {text!r} shares id {token_ids[code]} with other codes, as unknown text does; "
            "add it to the tokenizer, or correct the template"
        )
    return np.where(shared, NO_TOKEN, token_ids)
