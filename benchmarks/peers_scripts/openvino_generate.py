"""OpenVINO GenAI's continuous batching in bf16. Arguments: CHECKPOINT WORK."""

import sys
from pathlib import Path

import numpy as np
import openvino
from openvino_genai import ContinuousBatchingPipeline, GenerationConfig, SchedulerConfig
from questions import answer_questions

checkpoint, exported = Path(sys.argv[1]), Path(sys.argv[2]) / "openvino-model"
if not (exported / "openvino_model.xml").is_file():
    from optimum.intel import OVModelForCausalLM

    OVModelForCausalLM.from_pretrained(checkpoint, export=True, compile=False, load_in_8bit=False).save_pretrained(
        exported
    )
scheduler = SchedulerConfig()
scheduler.cache_size = 6  # GiB
scheduler.max_num_seqs, scheduler.max_num_batched_tokens = 512, 4096
scheduler.enable_prefix_caching, scheduler.dynamic_split_fuse = False, True
pipeline = ContinuousBatchingPipeline(str(exported), scheduler, "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})


def search(prompt: list[int], width: int, new_tokens: int) -> float:
    """Length penalty 0 leaves sums of log-probabilities."""
    config = GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = new_tokens
    config.num_beams = config.num_return_sequences = width
    config.num_beam_groups, config.ignore_eos, config.do_sample, config.length_penalty = 1, True, False, 0.0
    tokens = openvino.Tensor(np.array([prompt], dtype=np.int64))
    (answer,) = pipeline.generate([tokens], [config])
    return answer.m_scores[0]


answer_questions(search)
