"""The generated stubs: current, and fit for the lowest versions that the package allows."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[1]
STUBS = REPOSITORY / "recall_service" / "stubs" / "recall" / "v1"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """protos/generate.py, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("generate_stubs", REPOSITORY / "protos" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def floor_of(distribution: str) -> tuple[int, ...]:
    """The lowest version of `distribution` that pyproject.toml allows."""
    dependencies = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    (floor,) = (
        found[1] for dependency in dependencies if (found := re.match(rf"{distribution}>=([\d.]+)", dependency))
    )
    return version_of(floor)


def version_of(text: str) -> tuple[int, ...]:
    parts = tuple(map(int, text.split(".")))
    return parts + (0,) * (3 - len(parts))


def test_the_committed_stubs_are_what_the_protos_say(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    generator.main()
    assert generator.stale_stubs(generator.generate()) == []


def test_stale_missing_and_left_over_stubs_are_named_and_mended(generator: ModuleType, tmp_path: Path) -> None:
    generated = {"stale_pb2.py": "new", "missing_pb2.pyi": "new", "current_pb2_grpc.py": "same"}
    for name, text in {"stale_pb2.py": "old", "current_pb2_grpc.py": "same", "left_over_pb2.py": ""}.items():
        (tmp_path / name).write_text(text)
    assert generator.stale_stubs(generated, tmp_path) == ["left_over_pb2.py", "missing_pb2.pyi", "stale_pb2.py"]
    generator.write(generated, tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == generated


def test_a_stale_stub_fails_the_check_with_the_remedy(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    monkeypatch.setattr(generator, "generate", lambda: {"recall/v1/new_pb2.py": ""})
    with pytest.raises(SystemExit, match=r"stale stubs: .*recall/v1/new_pb2.py.*; run `python protos/generate.py`"):
        generator.main()


def test_a_proto_that_does_not_compile_is_an_error(
    generator: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "recall" / "v1" / "broken.proto"
    broken.parent.mkdir(parents=True)
    broken.write_text('syntax = "proto3";\nmessage {')
    with pytest.raises(SystemExit, match="protoc refused the protos"):
        generator.generate(tmp_path)
    assert "broken.proto" in capfd.readouterr().err


def test_stubs_import_each_other_under_our_package() -> None:
    for path in STUBS.glob("*_pb2*"):
        assert not re.search(r"^(from|import) recall\b", path.read_text(), re.MULTILINE), path.name


@pytest.mark.parametrize("path", sorted(STUBS.glob("*_pb2.py")), ids=lambda path: path.name)
def test_messages_ask_for_no_newer_protobuf_than_the_package(path: Path) -> None:
    call = re.search(r"ValidateProtobufRuntimeVersion\(\s*[\w.]+,\s*(\d+),\s*(\d+),\s*(\d+),", path.read_text())
    assert call is not None
    assert tuple(map(int, call.groups())) <= floor_of("protobuf")


@pytest.mark.parametrize("path", sorted(STUBS.glob("*_pb2_grpc.py")), ids=lambda path: path.name)
def test_services_ask_for_no_newer_grpcio_than_the_package(path: Path) -> None:
    generated_version = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", path.read_text())
    assert generated_version is not None
    assert version_of(generated_version[1]) <= floor_of("grpcio")
