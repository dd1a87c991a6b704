"""O3 for searches that end where they like: transformers' own beam search under a Generation."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel
from transformers.generation import GenerationMode

from recall_service.engine.generation import Generation


class Sentence(NamedTuple):
    """A path with its stop token, if it has one, and what transformers calls its sequences_score."""

    path: tuple[int, ...]
    score: float


class Generated(NamedTuple):
    """Sentences, best first, and how many forwards the search took."""

    sentences: list[Sentence]
    num_forwards: int


class AlwaysBeamSearch(GenerationConfig):
    """`generate` takes greedy search for a beam search of width one; this does not."""

    def get_generation_mode(self, assistant_model: PreTrainedModel | None = None) -> GenerationMode:
        return GenerationMode.BEAM_SEARCH


class Temperature(LogitsProcessor):
    """Handed log-probabilities, as beam search does, gives those of softmax(logits / temperature)."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return (scores / self._temperature).log_softmax(-1)


def generate_freely(
    model: PreTrainedModel, prompt: Sequence[int], width: int, generation: Generation, num_results: int = 0
) -> Generated:
    """What `generate` returns. `width` and the stop tokens together are at most the vocabulary."""
    config = AlwaysBeamSearch(
        num_beams=width,
        num_return_sequences=num_results or width,
        max_new_tokens=generation.max_new_tokens,
        eos_token_id=sorted(generation.stop_tokens) or None,
        length_penalty=generation.length_penalty,
        early_stopping=generation.early_stopping,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    output = model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        generation_config=config,
        logits_processor=LogitsProcessorList([Temperature(generation.temperature)]),
    )
    lengths = (output.beam_indices >= 0).sum(1).tolist()
    paths = output.sequences[:, len(prompt) :].tolist()
    scores = output.sequences_scores.tolist()
    sentences = [
        Sentence(tuple(path[:length]), score) for path, length, score in zip(paths, lengths, scores, strict=True)
    ]
    return Generated(sentences, len(output.scores))
