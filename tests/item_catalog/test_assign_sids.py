"""assign-sids: from embeddings to a file that `item-catalog build` reads."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from item_catalog.assigning.assign_sids import AssignmentSettings, SidAssignment, assign_sids
from item_catalog.assigning.embeddings import open_embeddings
from item_catalog.cli.app import app
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.storage.directory import open_catalog


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["assign-sids", *map(str, arguments)])


def assigned(directory: Path, rows: NDArray[np.floating], *codes: int, **options: object) -> SidAssignment:
    np.save(directory / "e.npy", rows)
    return assign_sids(open_embeddings(directory / "e.npy"), AssignmentSettings(SidLayout(codes), **options))


@pytest.fixture(scope="module")
def rows() -> NDArray[np.float32]:
    random = np.random.default_rng(0)
    middles = random.standard_normal((10, 6)) * 2
    return (middles[random.zipf(1.5, 900) % 10] + random.standard_normal((900, 6))).astype(np.float32)


@pytest.mark.parametrize("balance", [1.0, 1.3, math.inf])
def test_chunks_and_balance_keep_every_level_within_its_share(
    tmp_path: Path, rows: NDArray[np.float32], balance: float, monkeypatch: pytest.MonkeyPatch
):
    """Sorted by its first number, as a file sorted by category is: late chunks find codes full."""
    monkeypatch.setattr("item_catalog.assigning.embeddings._CHUNK_NUMBERS", 6 * 100)
    assignment = assigned(tmp_path, rows[rows[:, 0].argsort()], 12, 8, balance=balance, sample=400)
    for level, size in zip(assignment.quality.levels, (12, 8), strict=True):
        assert level.max_items_per_code <= min(900, math.ceil(balance * 900 / size) if balance < math.inf else 900)
        assert level.used_codes == size
    SidLayout((12, 8)).check(assignment.sids)


def test_quality_is_what_the_sids_say(tmp_path: Path, rows: NDArray[np.float32]):
    sids, quality = assigned(tmp_path, rows, 12, 8)
    _, counts = np.unique(sids, axis=0, return_counts=True)
    assert (quality.num_items, quality.num_sids, quality.max_items_per_sid) == (900, len(counts), counts.max())
    assert (quality.num_shared_sids, quality.num_items_on_shared_sids) == ((counts > 1).sum(), counts[counts > 1].sum())
    assert sum(items * num_sids for items, num_sids in quality.items_per_sid) == 900
    shares = np.bincount(sids[:, 0]) / 900
    assert quality.levels[0].entropy_bits == pytest.approx(-(shares * np.log2(shares)).sum())
    assert quality.levels[0].perplexity == pytest.approx(2 ** quality.levels[0].entropy_bits)
    assert quality.levels[0].max_items_per_code == np.bincount(sids[:, 0]).max()


def test_each_level_leaves_less_and_one_level_leaves_what_its_centroids_do(tmp_path: Path, rows: NDArray[np.float32]):
    sids, quality = assigned(tmp_path, rows, 12, 8, 8, iterations=300, balance=math.inf)
    left = [level.relative_residual for level in quality.levels]
    assert 1 > left[0] > left[1] > left[2] > 0
    means = np.stack([rows[sids[:, 0] == code].mean(axis=0, dtype=np.float64) for code in range(12)])
    spread = np.square(rows - rows.mean(axis=0, dtype=np.float64)).sum()
    assert left[0] == pytest.approx(math.sqrt(np.square(rows - means[sids[:, 0]]).sum() / spread), rel=1e-3)


def test_one_seed_gives_one_answer_and_another_another(tmp_path: Path, rows: NDArray[np.float32]):
    first, again, other = (assigned(tmp_path, rows, 12, 8, sample=300, seed=seed).sids for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_distinct_gives_every_item_a_sid_of_its_own(tmp_path: Path, rows: NDArray[np.float32]):
    repeated = np.concatenate([rows[:200], np.repeat(rows[:1], 20, axis=0)])
    shared = assigned(tmp_path, repeated, 8, 64, balance=math.inf).quality
    distinct = assigned(tmp_path, repeated, 8, 64, balance=math.inf, distinct=True).quality
    assert shared.max_items_per_sid >= 20
    assert distinct.num_sids == 220
    assert distinct.levels[0] == shared.levels[0]
    assert distinct.levels[1].relative_residual >= shared.levels[1].relative_residual


@settings(max_examples=40)
@given(st.data())
def test_any_finite_numbers_get_legal_sids(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    """The ends of float64's range, repeated rows and columns of one value included."""
    numbers = st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e308, -1.7e308, 1 + 1e-12]) | st.floats(
        -2, 2, allow_subnormal=False
    )
    dims = data.draw(st.integers(1, 3))
    rows = np.array(data.draw(st.lists(st.lists(numbers, min_size=dims, max_size=dims), min_size=2, max_size=20)))
    codes = data.draw(st.lists(st.integers(1, min(4, len(rows))), min_size=1, max_size=3))
    options = {"balance": data.draw(st.sampled_from([1.0, 1.5, math.inf])), "distinct": data.draw(st.booleans())}
    directory = tmp_path_factory.mktemp("any")
    if (rows == rows[0]).all():
        with pytest.raises(CatalogError, match="embeddings are equal"):
            assigned(directory, rows, *codes, **options)
        return
    sids, quality = assigned(directory, rows, *codes, **options)
    SidLayout(tuple(codes)).check(sids)
    assert all(math.isfinite(level.relative_residual) for level in quality.levels)


def test_fewer_different_embeddings_than_codes_leave_codes_unused(tmp_path: Path):
    quality = assigned(tmp_path, np.repeat([[0.0], [1.0], [5.0]], 4, axis=0), 8, 4, balance=1.0).quality
    assert [level.used_codes for level in quality.levels] == [3, 1]
    assert [level.relative_residual for level in quality.levels] == pytest.approx([0, 0], abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": 0.9}, "balance: 0.9; give at least 1, or inf"),
        ({"balance": math.nan}, "balance: nan"),
        ({"iterations": 0}, "iterations: 0; give at least 1"),
        ({"seed": -1}, "seed: -1; give 0 or more"),
        ({"sample": 9}, "sample: 9 items for 16 codes; give at least one for each"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_settings_are_named(options: dict[str, float], message: str):
    with pytest.raises(CatalogError, match=message):
        AssignmentSettings(SidLayout((16, 4)), **options)


def test_distinct_wants_sids_that_are_one_word():
    with pytest.raises(CatalogError, match=r"distinct: .* give less"):
        AssignmentSettings(SidLayout((65_536,) * 4), distinct=True)


def test_what_is_written_is_built(tmp_path: Path, rows: NDArray[np.float32]):
    np.save(tmp_path / "e.npy", rows)
    (tmp_path / "ids.txt").write_text("\n".join(f"item-{row}" for row in range(900)))
    out = tmp_path / "sids.parquet"
    result = run(tmp_path / "e.npy", out, "--ids", tmp_path / "ids.txt", "--levels", 2, "--codes", "16,8", "--json")
    quality = json.loads(result.stdout.splitlines()[-1])
    assert pa_parquet.read_schema(out).names == ["item_id", "sid_0", "sid_1"]
    built = CliRunner().invoke(app, ["build", str(out), str(tmp_path / "catalog"), "--codebook-sizes", "16,8"])
    assert built.exit_code == 0, built.output
    catalog = open_catalog(tmp_path / "catalog")
    assert (catalog.num_items, catalog.trie.num_leaves) == (900, quality["num_sids"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["catalog", "e.npy", "ids.txt", "sids.parquet"]


def test_people_read_tables(tmp_path: Path, rows: NDArray[np.float32]):
    np.save(tmp_path / "e.npy", rows)
    text = run(tmp_path / "e.npy", tmp_path / "sids.parquet", "--levels", 2, "--codes", 4, "--balance", "inf").stdout
    assert "perplexity" in text
    assert "or more" in text
    assert "900 items on 16 SIDs: 900 items share 16 SIDs" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--codes", "8,8"], "--codes: '8,8' for 3 levels; give one integer, or one for each level"),
        (["--codes", "many"], "--codes: 'many'; give integers with commas"),
        (["--codes", "0"], "codebook_sizes[0]: 0; give 1 to 65,536"),
        (["--codes", "1000"], "level 0: 1000 codes for 900 items; give fewer codes, or more items"),
        (["--balance", "0"], "balance: 0.0; give at least 1, or inf for no limit"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_arguments_are_one_line(tmp_path: Path, rows: NDArray[np.float32], arguments: list[str], message: str):
    np.save(tmp_path / "e.npy", rows)
    result = run(tmp_path / "e.npy", tmp_path / "sids.parquet", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "sids.parquet").exists()


def test_a_bad_row_is_named_and_nothing_written(tmp_path: Path, rows: NDArray[np.float32]):
    spoilt = rows.copy()
    spoilt[7, 2] = np.nan
    np.save(tmp_path / "e.npy", spoilt)
    result = run(tmp_path / "e.npy", tmp_path / "sids.parquet")
    assert result.stderr == f"error: {tmp_path}/e.npy: row 7 (item 7): embedding[2] is nan; give finite numbers\n"
    assert [path.name for path in tmp_path.iterdir()] == ["e.npy"]


def test_a_place_that_cannot_be_written_and_a_wrong_name(tmp_path: Path, rows: NDArray[np.float32]):
    np.save(tmp_path / "e.npy", rows)
    (tmp_path / "taken.parquet").mkdir()
    assert "cannot be written" in run(tmp_path / "e.npy", tmp_path / "taken.parquet", "--codes", 4).stderr
    assert "give a name that ends in .parquet" in run(tmp_path / "e.npy", tmp_path / "sids.csv").stderr
