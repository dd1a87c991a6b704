"""CTranslate2 in fp32: it has no bf16 on a CPU, and its int8 is another model. Arguments: CHECKPOINT WORK."""

import os
import sys
from pathlib import Path

import ctranslate2
from questions import answer_questions

checkpoint, converted = Path(sys.argv[1]), Path(sys.argv[2]) / "ctranslate2-model"
if not (converted / "model.bin").is_file():
    ctranslate2.converters.TransformersConverter(str(checkpoint)).convert(str(converted), force=True)
cores = len(os.sched_getaffinity(0))
generator = ctranslate2.Generator(str(converted), device="cpu", compute_type="float32", intra_threads=cores)


def search(prompt: list[int], width: int, new_tokens: int) -> float:
    """Length penalty 0 leaves sums of log-probabilities."""
    (answer,) = generator.generate_batch(
        [[f"<t{token}>" for token in prompt]],
        beam_size=width,
        num_hypotheses=width,
        max_length=new_tokens,
        min_length=new_tokens,
        length_penalty=0,
        include_prompt_in_result=False,
        return_scores=True,
        end_token=[],
    )
    return answer.scores[0]


answer_questions(search)
