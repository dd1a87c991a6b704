"""transformers' own beam search with the same weights, on the same device, in turns with ours."""

import statistics
import time
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from benchmarks.device_clock import DeviceClock
from benchmarks.gpu_workload import FREE, NEW_TOKENS, Cell, GpuWorkload
from recall_service.engine.models.config import DecoderConfig
from recall_service.engine.models.decoder import DecoderWeights

SCORE_TOLERANCE = 0.1  # per token: logits reach 13, where bf16 has steps of 1/16, and both round theirs


def measure_peer(work: GpuWorkload, cell: Cell, clock: DeviceClock, repeats: int) -> dict[str, Any]:
    """Median milliseconds of a free search of one prompt, theirs and ours, and how far the best scores are apart.

    Raises AssertionError when that is further than rounding explains.
    """
    model = transformers_model(work.decoder.config, work.weights, work.decoder.dtype)
    engine = work.engine_for(cell)
    theirs, ours, differences = [], [], []
    for repeat in range(repeats + 1):  # the first is the warm-up
        (request,) = work.requests(cell, FREE, seed=repeat)
        start = time.perf_counter()
        (result,) = engine.search([request])
        done = time.perf_counter()
        prompt = torch.as_tensor(request.prompt, device=clock.device)[None]
        score = _best_score(model, prompt, cell.width)
        end = time.perf_counter()
        differences.append(abs(score - float(result.scores[0])))
        theirs += [1000 * (end - done)] if repeat else []
        ours += [1000 * (done - start)] if repeat else []
    assert max(differences) <= SCORE_TOLERANCE * NEW_TOKENS, f"the best scores are {max(differences):.3f} apart"
    return cell._asdict() | {
        "peer": "transformers",
        "milliseconds": statistics.median(theirs),
        "ours_milliseconds": statistics.median(ours),
        "ratio": statistics.median(theirs) / statistics.median(ours),
        "score_difference": max(differences),
    }


def transformers_model(config: DecoderConfig, weights: DecoderWeights, dtype: torch.dtype) -> PreTrainedModel:
    """A Qwen3 of transformers with a copy of our weights, beside them on their device."""
    with weights.embedding.device:
        model = Qwen3ForCausalLM._from_config(
            Qwen3Config(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.mlp_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                max_position_embeddings=config.max_positions,
                rms_norm_eps=config.norm_eps,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
                tie_word_embeddings=config.tied_head,
            ),
            dtype=dtype,
        ).eval()
    model.load_state_dict(_state(config, weights))
    return model


def _state(config: DecoderConfig, weights: DecoderWeights) -> dict[str, Tensor]:
    """Our weights by the names that transformers gives their parts."""
    state = {
        "model.embed_tokens.weight": weights.embedding,
        "model.norm.weight": weights.final_norm,
        "lm_head.weight": weights.head,
    }
    query_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    for index, layer in enumerate(weights.layers):
        queries, keys, values = layer.qkv.weight.split((query_size, kv_size, kv_size))
        gate, up = layer.gate_up.weight.chunk(2)
        assert layer.head_norm is not None, "a Qwen3 has one"
        parts = {
            "input_layernorm": layer.attention_norm,
            "post_attention_layernorm": layer.mlp_norm,
            "self_attn.q_proj": queries,
            "self_attn.k_proj": keys,
            "self_attn.v_proj": values,
            "self_attn.q_norm": layer.head_norm[0],
            "self_attn.k_norm": layer.head_norm[-1],
            "self_attn.o_proj": layer.out.weight,
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": layer.down.weight,
        }
        state |= {f"model.layers.{index}.{name}.weight": part for name, part in parts.items()}
    return state


@torch.inference_mode()
def _best_score(model: PreTrainedModel, prompt: Tensor, width: int) -> float:
    """Length penalty 0 leaves sums of log-probabilities. To read the score is to wait for the device."""
    answer = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        length_penalty=0.0,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return float(answer.sequences_scores[0])
