"""Benchmarks run at toy size, in a cache of their own, on one thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def toy_size(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="package")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from benchmarks.workload import TINY, prepare_checkpoint

    return prepare_checkpoint(TINY, tmp_path_factory.mktemp("tiny") / "checkpoint")
