"""Which device is meant, and what is said when it is not there."""

import pytest
import torch

from recall_service.engine.device import on_device, resolve_device
from recall_service.errors import SettingsError


@pytest.mark.parametrize(("is_there", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch, is_there: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_there)
    assert resolve_device("auto") == expected


@pytest.mark.parametrize(("name", "count"), [("cuda", 0), ("cuda:1", 1), ("cuda:7", 2)])
def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(SettingsError, match=rf"device: '{name}'; torch .* sees {count} GPUs: give auto or cpu"):
        resolve_device(name)


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:1"])
def test_what_is_there_is_taken_as_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device(name) == name


def test_on_a_cpu_there_is_nothing_to_choose() -> None:
    with on_device(torch.device("cpu")):
        assert torch.zeros(1).device.type == "cpu"
