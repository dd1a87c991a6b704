"""The service around an engine of known slowness: `python -m benchmarks.service_stub DIR STEP_SECONDS MAX_ROWS`.

Everything is the service's own, but that every step first sleeps; for a spell after SIGUSR1, four times as long. Writes
what `recall-service serve` writes.
"""

import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from recall_service import app
from recall_service.config import load_settings
from recall_service.engine.engine import BeamEngine, Completion
from recall_service.event_loop import run
from recall_service.observability.logging import configure_logging
from recall_service.serving.bundles import launch

SLOW_SECONDS, TIMES_SLOWER = 0.65, 4.0


class SleepyEngine(BeamEngine):
    """Sleeps before every step that has work to do."""

    step_seconds = 0.0
    slow_until = 0.0  # of time.monotonic()

    def step(self) -> list[Completion]:
        """One step of the engine, late."""
        if not self.is_idle:
            time.sleep(self.step_seconds * (TIMES_SLOWER if time.monotonic() < self.slow_until else 1.0))
        return super().step()


def slow_down(*_: object) -> None:
    """Be slow for SLOW_SECONDS from now on."""
    SleepyEngine.slow_until = time.monotonic() + SLOW_SECONDS


def main(directory: Path, step_seconds: float, max_rows: int) -> None:
    """Serve until SIGTERM."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGUSR1, slow_down)
    SleepyEngine.step_seconds = step_seconds
    launch.BeamEngine = SleepyEngine  # type: ignore[attr-defined]  # in this process there is no other
    ports = {"port": 0, "admin_port": 0, "metrics_port": 0}
    room = {"max_rows": max_rows, "max_queue_rows": 4 * max_rows}
    settings = load_settings(flags={"bundles": [directory], **room, **ports})
    configure_logging("error", "json")
    run(app.serve(settings, lambda serving: print(json.dumps(asdict(serving)), flush=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
