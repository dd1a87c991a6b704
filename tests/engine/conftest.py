"""One tiny real checkpoint for all tests of the engine, and one thread, so that small matrices are not split."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.loader import load_decoder
from tests.make_checkpoint import make_model, write_checkpoint

# It builds catalogues, which needs Arrow; the engine itself does not, and is tested where there is none.
collect_ignore = [] if find_spec("pyarrow") else ["test_excluded_search.py"]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_model() -> PreTrainedModel:
    """A Qwen3 of 64 tokens by transformers: the model itself, for oracles."""
    return make_model("qwen3")


@pytest.fixture(scope="session")
def tiny_checkpoint(tiny_model: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its checkpoint. Tests copy it before they change it."""
    return write_checkpoint(tiny_model, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_decoder(tiny_checkpoint: Path) -> Decoder:
    """The same model, loaded by the engine."""
    return load_decoder(tiny_checkpoint)
