"""Writes the bundle.toml of the demo: how its model, catalogue, prompt and search fit together."""

from pathlib import Path

from item_catalog.sid import SidLayout
from recall_service.demo.tokens import BOS, sid_token_templates

MODEL_DIRECTORY = "model"
STORE_DIRECTORY = "catalog"

_TEMPLATE = """\
[bundle]
name = "demo-shop"

[model]
path = "{model}"

[catalog]
path = "{catalog}"

[sid]
tokens = [{tokens}]

[search]
score_space = "VOCABULARY"
beam_width = 200
max_beam_width = 400
num_items = 100
max_num_items = 400

[prompt]
prefix = "{prefix}"
item = "{{sid}}"
separator = ""
suffix = ""
max_history = {max_history}
unknown_items = "skip"
empty_history = "refuse"
"""


def write_bundle(directory: Path, layout: SidLayout, *, max_history: int) -> None:
    """Write bundle.toml into `directory`, which holds the model and the store of the catalogue under the names above.

    max_history: how many of a user's newest items the model was trained to read.
    """
    text = _TEMPLATE.format(
        model=MODEL_DIRECTORY,
        catalog=STORE_DIRECTORY,
        tokens=", ".join(f'"{template}"' for template in sid_token_templates(layout)),
        prefix=BOS,
        max_history=max_history,
    )
    (directory / "bundle.toml").write_text(text, encoding="utf-8")
