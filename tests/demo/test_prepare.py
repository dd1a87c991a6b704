"""A prepared demo is whole, kept for the next run, and never half finished."""

import tomllib
from pathlib import Path

import pytest

from item_catalog.storage.manifest import FORMAT_VERSION
from item_catalog.updating.store import CatalogStore
from item_catalog.updating.updates import ItemUpdates
from recall_service.demo import prepare
from recall_service.demo.assortment import LAYOUT
from recall_service.demo.bundle_file import STORE_DIRECTORY, write_bundle
from recall_service.demo.prepare import DemoSettings, PreparedDemo, prepare_demo, restock
from recall_service.errors import SetupError

SETTINGS = DemoSettings(seed=3, num_items=300, num_train_users=50, num_held_out_users=5, max_seconds=0.5)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> PreparedDemo:
    return prepare_demo(tmp_path_factory.mktemp("demo") / "new", SETTINGS, progress=False)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("trained although an earlier run could be reused")

    monkeypatch.setattr(prepare, "train_checkpoint", refuse)


def test_the_bundle_names_a_model_and_a_store_that_exist(demo: PreparedDemo) -> None:
    bundle = tomllib.loads((demo.bundle_directory / "bundle.toml").read_text(encoding="utf-8"))
    assert (demo.bundle_directory / bundle["model"]["path"] / "model.safetensors").is_file()
    catalog = CatalogStore(demo.bundle_directory / bundle["catalog"]["path"]).load().catalog
    assert catalog.num_items == len(demo.shop.assortment.item_ids) == 300
    assert catalog.layout == LAYOUT
    assert {name: column.kind.value for name, column in catalog.attributes.items()} == {
        "department": "text",
        "brand": "text",
        "price": "number",
    }


def test_bundle_file_says_what_the_loader_reads(tmp_path: Path) -> None:
    write_bundle(tmp_path, LAYOUT, max_history=20)
    assert tomllib.loads((tmp_path / "bundle.toml").read_text(encoding="utf-8")) == {
        "bundle": {"name": "demo-shop"},
        "model": {"path": "model"},
        "catalog": {"path": "catalog"},
        "sid": {"tokens": ["<a_{code}>", "<b_{code}>", "<c_{code}>"]},
        "search": {
            "score_space": "VOCABULARY",
            "beam_width": 200,
            "max_beam_width": 400,
            "num_items": 100,
            "max_num_items": 400,
        },
        "prompt": {
            "prefix": "<bos>",
            "item": "{sid}",
            "separator": "",
            "suffix": "",
            "max_history": 20,
            "unknown_items": "skip",
            "empty_history": "refuse",
        },
    }


def test_a_finished_run_is_reused(demo: PreparedDemo, no_training: None) -> None:
    again = prepare_demo(demo.bundle_directory.parent, SETTINGS, progress=False)
    assert not demo.reused
    assert again.reused
    assert again.bundle_directory == demo.bundle_directory
    assert again.shop.train.items.tolist() == demo.shop.train.items.tolist()


def test_other_settings_are_prepared_anew(demo: PreparedDemo, no_training: None) -> None:
    other = DemoSettings(seed=4, num_items=300, num_train_users=50, num_held_out_users=5, max_seconds=0.5)
    with pytest.raises(AssertionError, match="trained although"):
        prepare_demo(demo.bundle_directory.parent, other, progress=False)


def test_what_a_release_with_another_format_made_is_not_taken(
    demo: PreparedDemo, no_training: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "FORMAT_VERSION", FORMAT_VERSION + 1)
    with pytest.raises(AssertionError, match="trained although"):
        prepare_demo(demo.bundle_directory.parent, SETTINGS, progress=False)


def test_what_was_sold_out_is_back_in_stock_for_the_next_run(demo: PreparedDemo) -> None:
    store = CatalogStore(demo.bundle_directory / STORE_DIRECTORY)
    whole = store.load()
    sold_out, _ = store.apply(ItemUpdates(removals=(demo.shop.assortment.item_ids[0],)), whole)
    assert sold_out.catalog.version != whole.catalog.version
    restock(demo)
    assert store.load().catalog.version == whole.catalog.version
    head = store.head()
    restock(demo)
    assert store.head() == head


def test_nothing_is_left_of_a_run_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(prepare, "write_bundle", fail)
    with pytest.raises(OSError, match="disk full"):
        prepare_demo(tmp_path, SETTINGS, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_what_an_equal_run_finished_meanwhile_is_kept(
    demo: PreparedDemo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicker = tmp_path / demo.bundle_directory.name

    def train_while_another_finishes(*arguments: object, **options: object) -> None:
        quicker.mkdir()
        (quicker / "bundle.toml").write_text("theirs", encoding="utf-8")

    monkeypatch.setattr(prepare, "train_checkpoint", train_while_another_finishes)
    assert prepare_demo(tmp_path, SETTINGS, progress=False).bundle_directory == quicker
    assert (quicker / "bundle.toml").read_text(encoding="utf-8") == "theirs"
    assert list(tmp_path.iterdir()) == [quicker]


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "demo"
    file.touch()
    with pytest.raises(SetupError, match="demo is a file; give a directory"):
        prepare_demo(file, SETTINGS, progress=False)
