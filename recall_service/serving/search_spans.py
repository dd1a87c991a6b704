"""One search as spans, from what the engine reports of it afterwards. Knows no tracing library."""

from recall_service.engine.request import BeamResult
from recall_service.serving.hooks import Tracer


def trace_search(tracer: Tracer, result: BeamResult) -> None:
    """Report queue, prefill and each level; decode as one, where the engine does not see its levels end."""
    admitted = result.submitted + result.queue_seconds
    prefilled = admitted + result.prefill_seconds
    tracer.span("queue", result.submitted, admitted)
    tracer.span("prefill", admitted, prefilled, cached_prompt_tokens=result.cached_prompt_tokens)
    for step in result.steps:
        started = step.started if step.depth else step.forwarded  # the forward of depth 0 is the prefill
        select_us = round(step.select_seconds * 1e6)
        tracer.span(f"level {step.depth}", started, step.ended, rows=step.rows, select_us=select_us)
    if not result.steps:
        tracer.span("decode", prefilled, prefilled + result.decode_seconds, rows_forwarded=result.rows_forwarded)
