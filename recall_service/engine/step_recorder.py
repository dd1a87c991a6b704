"""Records what a function launches on a GPU, to launch it again as a whole: a CUDA graph.

Knows nothing of what is recorded, but that it waits for no value and reads and writes memory that stays where it is.
"""

import threading
from collections.abc import Callable

import torch

from recall_service.engine.fixed_level import Level

# CUDA takes one capture at a time, and no other thread may free its caches or wait for the device meanwhile.
CAPTURING = threading.Lock()


class StepRecorder:
    """Records on a stream of its own; all recordings share one pool of memory, for no two of them ever run at once."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._is_pool_used = False

    def record(self, run: Callable[[], Level]) -> Callable[[], Level]:
        """What repeats `run`. Its result lies in the pool, until the next recording is repeated.

        `run` runs once before, for real: kernels are compiled and libraries set up by then. Raises what it raises.
        """
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with CAPTURING, torch.cuda.stream(self._stream):  # ours, so that it is left whatever happens
            run()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            level = self._capture(graph, run)
        torch.cuda.current_stream().wait_stream(self._stream)
        self._is_pool_used = True

        def replay() -> Level:
            graph.replay()
            return level

        return replay

    def _capture(self, graph: torch.cuda.CUDAGraph, run: Callable[[], Level]) -> Level:
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            level = run()
        except Exception:
            if not self._is_pool_used:  # torch forgets a pool that no graph came to own
                self._pool = torch.cuda.graph_pool_handle()
            raise
        finally:
            graph.capture_end()
        return level
