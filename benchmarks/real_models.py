"""The trained models beside the checkout, each on a real catalogue: bundles of them, and their users' histories.

Knows the layout of ../shared/data and no engine. Nothing there belongs to the product.
"""

import ast
import csv
import json
import random
from dataclasses import dataclass
from pathlib import Path

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
MAX_HISTORY = 20

History = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RealModel:
    """A checkpoint, the catalogue it was trained on, and where its users are; paths within the data's directory."""

    name: str
    checkpoint: str
    index: str
    users: str
    num_levels: int

    def write_bundle(self, data: Path, directory: Path) -> Path:
        """A bundle in `directory`: one file, that names the model and the catalogue where they lie. Returns it."""
        tokens = [f"<{level}_{{code}}>" for level in "abcd"[: self.num_levels]]
        (directory / "bundle.toml").write_text(
            f"""
            [bundle]
            name = "{self.name}"
            [model]
            path = "{data / self.checkpoint}"
            dtype = "float32"
            [catalog]
            path = "{data / self.index}"
            codebook_sizes = {[256] * self.num_levels}
            [sid]
            tokens = {json.dumps(tokens)}
            [prompt]
            prefix = "<bos>"
            max_history = {MAX_HISTORY}
            """,
            encoding="utf-8",
        )
        return directory

    def histories(self, data: Path, count: int) -> list[History]:
        """A random sample of users, always the same: what each took, oldest first, but for the last item."""
        text = (data / self.users).read_text(encoding="utf-8")
        if self.users.endswith(".csv"):
            found = [tuple(ast.literal_eval(row["history_item_id"])) for row in csv.DictReader(text.splitlines())]
        else:
            found = [tuple(items[:-1]) for items in json.loads(text).values()]
        return [tuple(map(str, items)) for items in random.Random(7).sample(found, min(count, len(found)))]  # noqa: S311


BEAUTY = RealModel("beauty", "models/beauty-qwen3", "beauty/Beauty.index.json", "beauty/Beauty.inter.json", 4)
INDUSTRIAL = RealModel(
    "industrial",
    "models/industrial-qwen3",
    "minionerec/index/Industrial_and_Scientific.index.json",
    "minionerec/test/Industrial_and_Scientific_5_2016-10-2018-11.csv",
    3,
)
