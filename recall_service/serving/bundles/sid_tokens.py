"""The token ids of semantic IDs: every code of every level must be exactly one token of the model."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from item_catalog.trie import PrefixTrie
from item_catalog.updating.updates import ItemUpdates
from recall_service.engine.constraint import NO_TOKEN, used_codes
from recall_service.errors import BundleError, Violation
from recall_service.serving.bundles.text_encoder import TextEncoder


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


def check_tokens(level_tokens: Sequence[NDArray[np.int64]], templates: Sequence[str], trie: PrefixTrie) -> None:
    """Whether another trie over the same codebooks can be searched. Raises BundleError for a code without a token."""
    for level, tokens in enumerate(level_tokens):
        if (tokens != NO_TOKEN).all():
            continue  # a trie may have a hundred million codes
        lacking = np.flatnonzero((tokens == NO_TOKEN) & used_codes(trie, level))
        if len(lacking):
            text = templates[level].replace("{code}", str(lacking[0]))
            raise BundleError(
                f"sid.tokens[{level}]: {text!r} is no token of the model; give the items of code {lacking[0]} another "
                "SID, or add it to the tokenizer and resize the model"
            )


def token_violations(updates: ItemUpdates, level_tokens: Sequence[NDArray[np.int64]]) -> list[Violation]:
    """The codes of new SIDs that are no tokens of the model. What is no code at all is the catalogue's to refuse."""
    return [
        Violation(f"upserts[{row}].sid[{level}]", f"{code}; the model has no token for it, so give another code")
        for row, upsert in enumerate(updates.upserts)
        for level, (code, tokens) in enumerate(zip(upsert.sid or (), level_tokens, strict=False))
        if 0 <= code < len(tokens) and tokens[code] == NO_TOKEN
    ]


def _level_ids(encoder: TextEncoder, template: str, level: int, trie: PrefixTrie, vocab_size: int) -> NDArray[np.int64]:
    size = trie.layout.codebook_sizes[level]
    used = used_codes(trie, level)
    token_ids = np.full(size, NO_TOKEN, np.int64)
    texts = [template.replace("{code}", str(code)) for code in range(size)]
    # The template as it stands is no SID token, so what it shares an id with is unknown text as well.
    *encodings, template_encoding = encoder.encode_many([*texts, template])
    counts = Counter(encoded[0] for encoded in (*encodings, template_encoding) if len(encoded) == 1)
    for code, encoded in enumerate(encodings):
        problem = _problem(encoded, counts, vocab_size)
        if problem is None:
            token_ids[code] = encoded[0]
        elif used[code]:
            raise BundleError(
                f"sid.tokens[{level}]: {texts[code]!r} is {problem}; each SID token must be exactly one id of the "
                "model: add it to the tokenizer and resize the model, or correct the template"
            )
    return token_ids


def _problem(encoded: list[int], counts: Counter[int], vocab_size: int) -> str | None:
    """Why a code's text is no SID token, if it is none. A tokenizer maps all text it does not know to one id."""
    if len(encoded) != 1:
        return f"{len(encoded)} tokens {encoded}"
    if encoded[0] >= vocab_size:
        return f"id {encoded[0]}, beyond the head's {vocab_size} rows"
    if counts[encoded[0]] > 1:
        return f"id {encoded[0]}, which other text shares, as unknown text does"
    return None
