"""A history as the model's token ids, exactly as the bundle's template says.

SID tokens split the text around them, so the template is tokenised once, at load, into three pieces of glue: before
the first item, between items, after the last. A prompt is then put together from arrays, with no tokenizer in the path
of a request; that the two ways agree is checked at load.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recall_service.errors import BundleError
from recall_service.serving.bundles.bundle_file import Glue, PromptSection
from recall_service.serving.bundles.text_encoder import TextEncoder


@dataclass(frozen=True, slots=True, eq=False)
class PromptTemplate:
    """Glue as token ids, int64 each, and the token of every code per level.

    head, between, tail: before the first SID, between two, after the last. empty: the prompt without any item.
    """

    head: NDArray[np.int64]
    between: NDArray[np.int64]
    tail: NDArray[np.int64]
    empty: NDArray[np.int64]
    level_tokens: tuple[NDArray[np.int64], ...]

    def build(self, sids: NDArray[np.int32]) -> NDArray[np.int64]:
        """SIDs int32 [items, levels], oldest first -> token ids int64 [prompt_len]."""
        if not len(sids):
            return self.empty
        items = np.stack([tokens[sids[:, level]] for level, tokens in enumerate(self.level_tokens)], axis=1)
        glued = np.concatenate([np.broadcast_to(self.between, (len(items), len(self.between))), items], axis=1)
        return np.concatenate([self.head, glued.ravel()[len(self.between) :], self.tail])

    def length(self, num_items: int) -> int:
        """Tokens of a prompt of that many items."""
        if not num_items:
            return len(self.empty)
        items = num_items * len(self.level_tokens) + (num_items - 1) * len(self.between)
        return len(self.head) + items + len(self.tail)


def make_template(
    section: PromptSection, encoder: TextEncoder, level_tokens: tuple[NDArray[np.int64], ...], vocab_size: int
) -> PromptTemplate:
    """Tokenise the glue of a bundle's prompt. Raises BundleError when a glue token is beyond the model."""
    before, after = section.item.split("{sid}")

    def glue(*parts: Glue) -> NDArray[np.int64]:
        token_ids = np.array(_encode(encoder, parts), np.int64)
        if len(token_ids) and token_ids.max() >= vocab_size:
            raise BundleError(
                f"prompt: {parts!r} holds token {token_ids.max()}; the model's are 0 to {vocab_size - 1}: correct it"
            )
        return token_ids

    return PromptTemplate(
        head=glue(section.prefix, before),
        between=glue(after, section.separator, before),
        tail=glue(after, section.suffix),
        empty=glue(section.prefix, section.suffix),
        level_tokens=level_tokens,
    )


def check_template(
    template: PromptTemplate,
    section: PromptSection,
    encoder: TextEncoder,
    sid_templates: Sequence[str],
    sids: NDArray[np.int32],
) -> None:
    """Compare a prompt of `sids` with what the tokenizer makes of the whole text. Raises BundleError if they differ."""
    if not all(isinstance(part, str) for part in (section.prefix, section.separator, section.suffix)):
        return  # token ids have no text to compare with
    texts = [
        "".join(text.replace("{code}", str(code)) for text, code in zip(sid_templates, sid, strict=True))
        for sid in sids.tolist()
    ]
    items = str(section.separator).join(section.item.replace("{sid}", text) for text in texts)
    whole = encoder.encode(f"{section.prefix}{items}{section.suffix}")
    if whole != template.build(sids).tolist():
        raise BundleError(
            "prompt: the tokenizer joins SID tokens with the text beside them; make them added tokens that are never "
            "stripped or merged, or give prefix, separator and suffix as token ids"
        )


def _encode(encoder: TextEncoder, parts: Sequence[Glue]) -> list[int]:
    """Neighbouring texts are tokenised together, as they would be in the whole prompt."""
    token_ids: list[int] = []
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        token_ids += encoder.encode(text) if text else []
        token_ids += part
        text = ""
    return token_ids + (encoder.encode(text) if text else [])
