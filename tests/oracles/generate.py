"""O3: transformers' own beam search, free or constrained to a catalogue."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from tests.oracles.recompute_beam import Beam
from tests.oracles.tries import Catalogue


def generate_beams(
    model: PreTrainedModel, prompt: Sequence[int], num_steps: int, width: int, catalogue: Catalogue | None = None
) -> list[Beam]:
    """The best `width` continuations. With a catalogue, `width` must not exceed its fewest prefixes of a length:
    beyond that, transformers fills up with duplicates.
    """
    options = {}
    if catalogue is not None:
        options["prefix_allowed_tokens_fn"] = lambda _, tokens: catalogue.children(
            tuple(tokens[len(prompt) :].tolist())
        )
    output = model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=num_steps,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    paths = output.sequences[:, len(prompt) :].tolist()
    scores = (output.sequences_scores * num_steps).tolist()  # it divides by the length
    return [Beam(tuple(path), score) for path, score in zip(paths, scores, strict=True)]
