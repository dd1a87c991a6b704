"""item-catalog: documents for machines, tables for people, one line and exit code 2 for errors."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from typer.testing import CliRunner, Result

from item_catalog.cli.app import app
from item_catalog.storage.directory import open_catalog

SOURCE = '{"7": ["<a_1>", "<b_2>"], "8": ["<a_1>", "<b_2>"], "9": ["<a_0>", "<b_3>"], "9": ["<a_0>", "<b_3>"]}'


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "items.json"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def built(source: Path, tmp_path: Path) -> Path:
    assert run("build", source, tmp_path / "catalog").exit_code == 0
    return tmp_path / "catalog"


def test_build_reports_what_it_read(source: Path, tmp_path: Path):
    result = run("build", source, tmp_path / "out", "--codebook-sizes", "4,8", "--json")
    facts = json.loads(result.stdout.splitlines()[-1])
    assert (facts["rows_read"], facts["duplicate_rows_merged"], facts["num_items"], facts["num_sids"]) == (4, 1, 3, 2)
    assert [level["codebook_size"] for level in facts["levels"]] == [4, 8]
    assert facts["version"] == open_catalog(tmp_path / "out").version


def test_build_tells_people(source: Path, tmp_path: Path):
    result = run("build", source, tmp_path / "out")
    assert "read 4 rows, merged 1 that repeat another" in result.stdout
    assert "2 items share 1 SIDs, at most 2 on one" in result.stdout
    assert open_catalog(tmp_path / "out").layout.codebook_sizes == (2, 4)


def test_inspect_shows_levels(built: Path):
    facts = json.loads(run("inspect", built, "--json").stdout)
    assert facts["levels"] == [
        {
            "codebook_size": 2,
            "num_prefixes": 2,
            "mean_branching": 2.0,
            "max_branching": 2,
            "num_chain_links": 0,
            "num_decided_sids": 2,
        },
        {
            "codebook_size": 4,
            "num_prefixes": 2,
            "mean_branching": 1.0,
            "max_branching": 1,
            "num_chain_links": 2,
            "num_decided_sids": 2,
        },
    ]
    text = run("inspect", built).stdout
    assert facts["version"] in text
    assert "max branching" in text
    assert "3 items (integer ids) on 2 SIDs" in text


def test_attributes_are_kept_and_shown(tmp_path: Path):
    source = tmp_path / "items.csv"
    source.write_text("item_id,sid,price,zip,title\na,1 2,3,007,x\nb,1 3,,011,y\n")
    built = run("build", source, tmp_path / "out", "--attribute", "price:number", "--attribute", "zip", "--json")
    facts = json.loads(built.stdout.splitlines()[-1])
    assert facts["attributes"] == {
        "price": {"kind": "number", "num_distinct": 1, "num_missing": 1, "total_bytes": 18},
        "zip": {"kind": "text", "num_distinct": 2, "num_missing": 0, "total_bytes": 8 + 24 + 6},
    }
    assert json.loads(run("inspect", tmp_path / "out", "--json").stdout)["attributes"] == facts["attributes"]
    text = run("inspect", tmp_path / "out").stdout
    assert "price: number, 1 distinct, 1 missing, 18 bytes" in text
    assert "zip: text, 2 distinct, 0 missing, 38 bytes" in text
    assert run("verify", tmp_path / "out").exit_code == 0


def test_a_directory_of_parquet_is_built(tmp_path: Path):
    (tmp_path / "parts").mkdir()
    for part in range(2):
        pa_parquet.write_table(pa.table({"item_id": [part], "sid_0": [part]}), tmp_path / f"parts/{part}.parquet")
    result = run("build", tmp_path / "parts", tmp_path / "out", "--json")
    assert json.loads(result.stdout.splitlines()[-1])["num_items"] == 2


def test_verify(built: Path):
    result = run("verify", built)
    assert (result.exit_code, result.stdout) == (0, f"{built}: sound, version {open_catalog(built).version}\n")


def test_verify_finds_what_inspect_does_not_look_for(built: Path):
    codes = built / "trie_codes_1.npy"
    codes.write_bytes(codes.read_bytes()[:-1] + b"\x01")
    assert run("inspect", built).exit_code == 0
    assert run("verify", built).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["build", "absent.json", "out"], "absent.json: No such file", id="source missing"),
        pytest.param(["build", "{source}", "{built}", "--codebook-sizes", "4,4"], "exists with version", id="occupied"),
        pytest.param(["build", "{source}", "out", "--codebook-sizes", "4,x"], "--codebook-sizes: '4,x'", id="sizes"),
        pytest.param(
            ["build", "{source}", "out", "--codebook-sizes", "4,2"], "items.json: codes: row 0 has code 2", id="code"
        ),
        pytest.param(["build", "{source}", "out", "--codebook-sizes", "4,0"], "codebook_sizes[1]: 0", id="size"),
        pytest.param(
            ["build", "{source}", "out", "--attribute", "price:money"],
            "--attribute: 'price:money'; give NAME",
            id="kind",
        ),
        pytest.param(
            ["build", "{source}", "out", "--attribute", "price:"], "--attribute: 'price:'; give", id="no kind"
        ),
        pytest.param(
            ["build", "{source}", "out", "--attribute", "a", "--attribute", "a:text"],
            "'a' twice; give it once",
            id="twice",
        ),
        pytest.param(["build", "{source}", "out", "--attribute", "Price"], "attribute 'Price': no name", id="name"),
        pytest.param(["build", "{source}", "out", "--attribute", "price"], "0 columns named 'price'", id="no column"),
        pytest.param(["build", "strange.csv", "out"], "among: ?[31m, b;", id="no terminal obeys"),
        pytest.param(["inspect", "absent"], "give the directory of a built catalogue", id="no catalogue"),
        pytest.param(["verify", "absent"], "give the directory of a built catalogue", id="nothing to verify"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, source: Path, built: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(source.parent)
    Path("strange.csv").write_text("\x1b[31m,b\n1,2\n")
    result = run(*(argument.format(source=source, built=built) for argument in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
