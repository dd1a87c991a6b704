"""Regenerate recall_service/stubs from protos/, or check that the committed stubs are what the protos say.

    python protos/generate.py            write the stubs
    python protos/generate.py --check    exit 1 and name the files when the committed stubs are stale

Needs grpcio-tools, at the version that pyproject.toml pins: the stubs demand at run time at least the protobuf and
grpcio that this tool was built with. Descriptors keep the names of the contract (`recall/v1/*.proto`); only Python's
imports are moved under `recall_service.stubs`, so that no top-level package called `recall` is claimed.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent
STUBS = PROTOS.parent / "recall_service" / "stubs"
_WELL_KNOWN = Path(protoc.__file__).parent / "_proto"  # google/protobuf/*.proto, which come with the tool
_ABSOLUTE_IMPORT = re.compile(r"^from recall\.v1 import", re.MULTILINE)
_SERVICE = re.compile(r"^service ", re.MULTILINE)


def generate(protos: Path = PROTOS) -> dict[str, str]:
    """Generate every stub of the protos under `protos`: path under `recall_service/stubs` -> text.

    Exits with protoc's own message when a proto does not compile.
    """
    sources = sorted(protos.glob("recall/v1/*.proto"))
    with_service = [source for source in sources if _SERVICE.search(source.read_text())]
    with tempfile.TemporaryDirectory() as out:
        _run_protoc(protos, sources, f"--python_out={out}", f"--pyi_out={out}")
        _run_protoc(protos, with_service, f"--grpc_python_out={out}")
        return {
            path.relative_to(out).as_posix(): _ABSOLUTE_IMPORT.sub(
                "from recall_service.stubs.recall.v1 import", path.read_text()
            )
            for path in sorted(Path(out).rglob("*_pb2*"))
        }


def _run_protoc(protos: Path, sources: list[Path], *outputs: str) -> None:
    roots = [f"--proto_path={root}" for root in (protos, _WELL_KNOWN)]
    if protoc.main(["protoc", *roots, *outputs, *map(str, sources)]) != 0:
        sys.exit("protoc refused the protos (see above); mend them and run again")


def stale_stubs(generated: dict[str, str], stubs: Path = STUBS) -> list[str]:
    """Names of stubs that differ from `generated`, are missing, or belong to no proto any more."""
    committed = {path.relative_to(stubs).as_posix(): path.read_text() for path in stubs.rglob("*_pb2*.py*")}
    return sorted(name for name in committed.keys() | generated.keys() if committed.get(name) != generated.get(name))


def write(generated: dict[str, str], stubs: Path = STUBS) -> None:
    """Make the stubs under `stubs` exactly `generated`."""
    for name in stale_stubs(generated, stubs):
        if name in generated:
            (stubs / name).write_text(generated[name])
        else:
            (stubs / name).unlink()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the stubs are stale")
    arguments = parser.parse_args()
    generated = generate()
    if not arguments.check:
        write(generated)
    elif stale := stale_stubs(generated):
        sys.exit(f"stale stubs: {', '.join(stale)}; run `python protos/generate.py` and commit the result")


if __name__ == "__main__":
    main()
