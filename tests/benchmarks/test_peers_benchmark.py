"""Peers are asked in turns with us, must find our scores, and are skipped with a reason when they cannot be had."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers
from benchmarks.peer_process import PeerProcess
from benchmarks.peer_recipes import PEERS, SCRIPTS, Peer, PeerUnavailable, requirements

PEER_FIELDS = {
    *("peer", "width", "prompt", "seconds", "ours_seconds", "ratio", "queries_per_second", "ours_queries_per_second"),
    *("score_difference", "scores_agree"),
}


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers made of transformers run in our own environment, and need no other."""
    monkeypatch.setattr(peers, "install", lambda peer, work: Path(sys.executable))


def run(
    capsys: pytest.CaptureFixture[str], checkpoint: Path, work: Path, names: str, *flags: str
) -> tuple[int, dict[str, Any]]:
    """Exit status, and the JSON of the last line of stdout."""
    places = ["--tiny", "--checkpoint", str(checkpoint), "--work", str(work)]
    status = peers.main([*places, "--peers", names, *flags])
    return status, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.usefixtures("own_environment")
def test_transformers_both_ways_find_our_scores(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    names = "transformers,transformers-expert"
    status, document = run(capsys, tiny_checkpoint, tmp_path, names, "--prompt", "16", "--widths", "10,400")
    assert status == 0
    assert document["skipped"] == []
    runs = [(result["peer"], result["width"]) for result in document["peers"]]
    assert runs == [("transformers", 10), ("transformers-expert", 10), ("transformers-expert", 400)]
    for result in document["peers"]:
        assert set(result) == PEER_FIELDS
        assert result["prompt"] == 16
        assert result["scores_agree"]
        assert result["ratio"] == pytest.approx(result["seconds"] / result["ours_seconds"])


@pytest.mark.usefixtures("own_environment")
def test_short_prompts_and_another_score_than_ours(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "SCORE_TOLERANCE", -1.0)  # no difference is small enough
    status, document = run(capsys, tiny_checkpoint, tmp_path, "transformers-expert", "--short", "--widths", "4")
    (result,) = document["peers"]
    assert result["prompt"] == [16, 32, 48, 64]
    assert result["queries_per_second"] > 0
    assert not result["scores_agree"]
    assert status == 1


def test_a_peer_that_cannot_be_installed_is_skipped(
    capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(peer: Peer, work: Path) -> Path:
        raise PeerUnavailable("pip install: ERROR: no such package")

    monkeypatch.setattr(peers, "install", refuse)
    status, document = run(capsys, tiny_checkpoint, tmp_path, "vllm", "--widths", "4")
    assert status == 0
    assert document["peers"] == []
    assert document["skipped"] == [{"peer": "vllm", "reason": "pip install: ERROR: no such package"}]


def test_a_peer_that_dies_says_its_last_words(tmp_path: Path) -> None:
    peer = PEERS["transformers-expert"]
    with (
        PeerProcess(peer, Path(sys.executable), tmp_path / "missing", tmp_path) as process,
        pytest.raises(PeerUnavailable, match=r"transformers-expert ended; its last words were: .*missing"),
    ):
        process.ask([1, 2, 3], 4, 3)


def test_every_recipe_has_its_script() -> None:
    assert {peer.script for peer in PEERS.values()} == {path.name for path in SCRIPTS.glob("*_*.py")}


def test_unknown_peers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers.main(["--peers", "vllm,nobody"])
    assert "'nobody'; known are vllm, openvino" in capsys.readouterr().err


def test_requirements_leave_out_extras_and_torch(tmp_path: Path) -> None:
    wheel = tmp_path / "peer-1.0-py3-none-any.whl"
    lines = ["numpy", 'torch==9.9; platform_machine == "x86_64"', "torchvision", "six>=1", 'pandas; extra == "bench"']
    metadata = "Metadata-Version: 2.1\nName: peer\n" + "".join(f"Requires-Dist: {line}\n" for line in lines)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("peer-1.0.dist-info/METADATA", metadata)
    assert list(requirements(wheel)) == ["numpy", "six>=1"]
