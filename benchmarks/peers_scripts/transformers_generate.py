"""transformers as its manual says: `generate(num_beams=W)`. Arguments: CHECKPOINT WORK."""

import sys

import torch
from questions import answer_questions
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()


@torch.inference_mode()
def search(prompt: list[int], width: int, new_tokens: int) -> float:
    """Length penalty 0 leaves sums of log-probabilities."""
    tokens = torch.tensor([prompt])
    answer = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=new_tokens,
        min_new_tokens=new_tokens,
        length_penalty=0.0,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return float(answer.sequences_scores[0])


answer_questions(search)
