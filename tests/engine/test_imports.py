"""The engine runs on a bare machine: torch, numpy, safetensors, and the data modules of item_catalog."""

import subprocess
import sys

FOREIGN = (
    "grpc",
    "google",
    "redis",
    "prometheus_client",
    "structlog",
    "pydantic",
    "typer",
    "rich",
    "cachetools",
    "xxhash",
    "pyarrow",
    "item_catalog.building.builder",
    "item_catalog.catalog",
    "item_catalog.storage.directory",
    "recall_service.serving",
    "recall_service.engine.kernels",
    "triton",
)


def test_importing_the_engine_brings_nothing_of_the_service() -> None:
    modules = "recall_service.engine.engine, recall_service.engine.models.loader"
    script = f"import sys, {modules}; print(*(name for name in {FOREIGN!r} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
