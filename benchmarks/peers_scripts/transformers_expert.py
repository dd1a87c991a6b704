"""transformers as an expert would use it: one prefill, its cache expanded once, reordered after each step.

Arguments: CHECKPOINT WORK.
"""

import sys

import torch
from questions import answer_questions
from transformers import AutoModelForCausalLM, DynamicCache

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()


@torch.inference_mode()
def search(prompt: list[int], width: int, new_tokens: int) -> float:
    """Plain beam search, a few tensors a step."""
    cache = DynamicCache()
    logits = model(torch.tensor([prompt]), past_key_values=cache, logits_to_keep=1).logits[:, -1]
    scores, tokens = logits.float().log_softmax(-1)[0].topk(width)
    cache.batch_repeat_interleave(width)
    for step in range(1, new_tokens):
        logits = model(tokens[:, None], past_key_values=cache).logits[:, -1]
        candidates = logits.float().log_softmax(-1) + scores[:, None]
        scores, flat = candidates.flatten().topk(width)
        parents, tokens = flat // candidates.shape[1], flat % candidates.shape[1]
        if step + 1 < new_tokens:
            cache.reorder_cache(parents)
    return float(scores[0])


answer_questions(search)
