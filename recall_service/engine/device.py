"""Which device the model and its engine live on."""

from contextlib import AbstractContextManager, nullcontext

import torch

from recall_service.errors import SettingsError


def resolve_device(name: str) -> str:
    """`auto` as the GPU that torch sees, else the CPU; any other name as it stands.

    Raises SettingsError when a GPU is named that torch does not see.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SettingsError(
            f"device: {name!r}; torch {torch.__version__} sees {torch.cuda.device_count()} GPUs: give auto or cpu, or "
            "install a CUDA build of torch and the driver it needs"
        )
    return name


def choose_attention_backends() -> None:
    """Keep torch's attention on a GPU from cuDNN, which makes a plan for every prompt length it has not yet seen.

    That costs the host tens of milliseconds each time; flash attention takes any length as it comes. For the process.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """While it lasts, what this thread launches goes to that GPU: Triton asks which one is current."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
