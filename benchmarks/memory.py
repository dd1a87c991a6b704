"""How much memory one search takes, measured in a process of its own.

The process loads a checkpoint, runs one search and says how far the high-water mark of its resident set rose above what
was resident before loading. A fresh process for each figure: an allocator that kept what an earlier search gave back
would hide it. Linux alone tells this much of a process.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.searches import CONSTRAINED, Cell, Searches
from benchmarks.workload import QWEN3_600M, TINY
from recall_service.engine.models.config import DecoderConfig

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_HIGH_WATER = "5"


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """What a search cannot do without, in bytes: weights, context, and beam_width x steps slots."""

    weights: int
    context: int
    slots: int

    @property
    def total(self) -> int:
        """Their sum."""
        return self.weights + self.context + self.slots

    @classmethod
    def of(cls, config: DecoderConfig, cell: Cell, value_bytes: int) -> "MemoryBudget":
        """The budget of one search; weights, keys and values take `value_bytes` each."""
        attention_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        layer = config.hidden_size * (2 * attention_size + 2 * kv_size + 3 * config.mlp_size)
        heads = 1 if config.tied_head else 2
        weights = heads * config.vocab_size * config.hidden_size + config.num_layers * layer
        token_bytes = 2 * config.num_layers * kv_size * value_bytes
        return cls(weights * value_bytes, cell.prompt * token_bytes, cell.width * cell.new_tokens * token_bytes)


def peak_bytes(checkpoint: Path, catalog: Path, cell: Cell, mode: str, dtype: str, *, is_tiny: bool) -> int | None:
    """Growth of the resident set's high-water mark, in bytes; None where /proc does not tell it."""
    if not STATUS.exists():
        return None
    arguments = [str(checkpoint), str(catalog), *map(str, cell), mode, dtype, *(["--tiny"] if is_tiny else [])]
    process = subprocess.run(  # noqa: S603  our own module, no shell
        [sys.executable, "-m", "benchmarks.memory", *arguments],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"benchmarks.memory {' '.join(arguments)}: {process.stderr.strip().splitlines()[-1]}")
    return int(process.stdout)


def main() -> None:
    """The measured process: prints bytes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("catalog", type=Path)
    parser.add_argument("prompt", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("new_tokens", type=int)
    parser.add_argument("mode", help=f"free or {CONSTRAINED}")
    parser.add_argument("dtype")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    cell = Cell(given.prompt, given.width, given.new_tokens)

    before = _status_bytes("VmRSS")
    searches = Searches.load(TINY if given.tiny else QWEN3_600M, given.checkpoint, given.catalog, dtype=given.dtype)
    CLEAR_REFS.write_text(RESET_HIGH_WATER, encoding="ascii")  # loading reads through the page cache: not counted
    searches.engine_for(cell).search([searches.request(cell, given.mode, seed=0)])
    print(_status_bytes("VmHWM") - before)


def _status_bytes(name: str) -> int:
    for line in STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{STATUS}: holds no {name}; this needs Linux")


if __name__ == "__main__":
    main()
