"""vLLM for CPU in bf16, prefix caching on: its beams are requests of their own. Arguments: CHECKPOINT WORK."""

import os
import sys

from questions import answer_questions

MAX_WIDTH = 400
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "6")  # GiB
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{len(os.sched_getaffinity(0)) - 1}")

if __name__ == "__main__":  # vLLM starts processes that import this file
    from vllm import LLM
    from vllm.sampling_params import BeamSearchParams

    engine = LLM(
        model=sys.argv[1],
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=2048,
        enable_prefix_caching=True,
        max_logprobs=2 * MAX_WIDTH + 2,
        max_num_seqs=512,
    )

    def search(prompt: list[int], width: int, new_tokens: int) -> float:
        """Sums of log-probabilities are what it keeps."""
        parameters = BeamSearchParams(beam_width=width, max_tokens=new_tokens, ignore_eos=True)
        (answer,) = engine.beam_search([{"prompt_token_ids": prompt}], parameters)
        return answer.sequences[0].cum_logprob

    answer_questions(search)
