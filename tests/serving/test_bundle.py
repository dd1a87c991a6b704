"""Bundles on disk: what bad ones are told, and what their version follows from."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.updating.updates import ItemUpdates
from recall_service.demo.tokens import make_tokenizer
from recall_service.engine.engine import BeamEngine
from recall_service.engine.request import BeamRequest
from recall_service.errors import BundleError, CheckpointError, InvalidRequest, SetupError
from recall_service.serving.bundles.bundle import Bundle, check_setup, load_bundle
from tests.serving.bundles import LAYOUT, LIMITS, small_rows, write_bundle, write_model, write_toml
from tests.serving.stores import write_store_bundle


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A sound bundle, for the test to spoil."""
    return write_bundle(tmp_path / "tiny")


def test_a_store_is_served_with_its_updates(tmp_path: Path) -> None:
    store = write_store_bundle(tmp_path / "tiny")
    store.apply(ItemUpdates(removals=("item-001",)), store.load())
    bundle = load_bundle(tmp_path / "tiny")
    assert bundle.snapshot is not None
    assert bundle.snapshot.head == store.head()
    assert bundle.catalog is bundle.snapshot.catalog
    assert bundle.catalog.find(["item-001", "item-002"]).tolist()[0] == -1
    assert bundle.version == load_bundle(write_bundle(tmp_path / "plain")).version
    write_toml(tmp_path / "tiny", catalog={"codebook_sizes": [4, 5, 6]})
    assert_refused(tmp_path / "tiny", BundleError, "catalog.codebook_sizes is for a source file; remove it")


def test_a_damaged_store_is_a_setup_error(tmp_path: Path) -> None:
    write_store_bundle(tmp_path / "tiny")
    (tmp_path / "tiny" / "catalog" / "CURRENT.json").write_text("{")
    with pytest.raises(SetupError, match=r"CURRENT.json: not JSON"):
        check_setup(tmp_path / "tiny")


def assert_refused(directory: Path, kind: type[Exception], *parts: str) -> None:
    """Loading fails with an error of that kind whose text holds every part."""
    with pytest.raises(kind) as caught:
        load_bundle(directory)
    missing = [part for part in parts if part not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_weights(directory: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = directory / "model" / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def answer_of(bundle: Bundle) -> list[tuple[list[int], float]]:
    prompt, _ = bundle.history_prompt(("item-005", "item-017"))
    request = BeamRequest(prompt=prompt, beam_width=9, constraint=bundle.constraint)
    result = BeamEngine(bundle.model, LIMITS).search([request])[0]
    return list(zip(result.tokens.tolist(), result.scores.tolist(), strict=True))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[bundle", ["not readable as TOML"]),
        ("x = " + "[" * 100_000, ["not readable as TOML"]),
        ("x = " + "9" * 5_000, ["not readable as TOML"]),
        ('[bundle]\nname = "x"\n', ["sid is missing; add it"]),
        ('[sid]\ntokens = ["<a_{code}>"]\n', ["bundle is missing; add it"]),
        ('[bundle]\nname = "x"\nlabel = "y"\n[sid]\ntokens = ["<a_{code}>"]\n', ["bundle.label", "no known key"]),
        ('[bundle]\nname = "a b"\n[sid]\ntokens = ["<a_{code}>"]\n', ["bundle.name is 'a b'"]),
        ('[bundle]\nname = "x"\n[sid]\ntokens = ["<a_1>"]\n', ["sid: tokens[0] is '<a_1>'", "{code} exactly once"]),
        ('[bundle]\nname = "x"\n[sid]\ntokens = []\n', ["sid.tokens is []", "at least 1"]),
    ],
    ids=[
        "no TOML",
        "too deep",
        "too long a number",
        "no [sid]",
        "no [bundle]",
        "unknown key",
        "name with a space",
        "no {code}",
        "no levels",
    ],
)
def test_a_text_that_is_no_bundle_file(tmp_path: Path, text: str, parts: list[str]) -> None:
    (tmp_path / "bundle.toml").write_text(text)
    assert_refused(tmp_path, BundleError, str(tmp_path / "bundle.toml"), *parts)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"search": {"beam_width": 65}}, ["beam_width is 65, over max_beam_width 64", "lower it"]),
        ({"search": {"num_items": 65}}, ["num_items is 65, over max_num_items 64"]),
        ({"search": {"proven_row_budget": -1}}, ["search.proven_row_budget is -1", "greater than or equal to 0"]),
        ({"search": {"beam_width": True}}, ["search.beam_width is True", "valid integer"]),
        ({"search": {"score_space": "LOGITS"}}, ["search.score_space is 'LOGITS'", "'CATALOG'"]),
        ({"model": {"dtype": "float16"}}, ["model.dtype is 'float16'", "'bfloat16'"]),
        ({"prompt": {"item": "item"}}, ["prompt: item is 'item'", "{sid} exactly once"]),
        ({"prompt": {"prefix": 5}}, ["prompt.prefix is 5", "give text, or a list of token ids"]),
        ({"prompt": {"suffix": [1, -1]}}, ["prompt.suffix is [1, -1]", "give text, or a list of token ids"]),
        ({"prompt": {"prefix": [300]}}, ["prompt: ([300], '') holds token 300", "0 to 279"]),
        ({"prompt": {"max_history": 0}}, ["prompt.max_history is 0"]),
        ({"prompt": {"max_history": 85}}, ["prompt.max_history: 85 items make 256 tokens", "254", "lower it"]),
        ({"prompt": {"prefix": "", "empty_history": "serve"}}, ["prompt.empty_history: 'serve'", "add one"]),
        ({"sid": {"tokens": ["<a_{code}>", "<b_{code}>"]}}, ["sid.tokens: 2 levels", "have 3"]),
        ({"model": {"path": "nowhere"}}, ["model.path 'nowhere' is no directory; correct it"]),
        ({"model": {"path": "x" * 300}}, ["is no directory; correct it"]),
        ({"catalog": {"path": "x" * 300}}, ["does not exist", "item-catalog build"]),
        ({"catalog": {"path": "nowhere"}}, ["catalog.path 'nowhere' does not exist", "item-catalog build"]),
        ({"catalog": {"codebook_sizes": [4, 5, 6]}}, ["catalog.codebook_sizes", "remove it"]),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_setting_that_does_not_fit(directory: Path, changes: dict[str, Any], parts: list[str]) -> None:
    write_toml(directory, **changes)
    assert_refused(directory, BundleError, str(directory / "bundle.toml"), *parts)


def test_a_directory_without_bundle_file(tmp_path: Path) -> None:
    assert_refused(tmp_path, BundleError, str(tmp_path / "bundle.toml"), "no such file")


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("<d_{code}>", ["tokens[0]: '<d_", "tokens [", "exactly one id"]),
        (" <a_{code}>", ["tokens[0]: ' <a_", "2 tokens ["]),
    ],
    ids=["bytes", "with a space"],
)
def test_sid_tokens_that_are_several_ids(directory: Path, template: str, parts: list[str]) -> None:
    write_toml(directory, sid={"tokens": [template, "<b_{code}>", "<c_{code}>"]})
    assert_refused(directory, BundleError, str(directory / "bundle.toml"), *parts, "add it to the tokenizer")


def test_sid_tokens_beyond_the_head(directory: Path) -> None:
    """The tokenizer was given tokens for which the model was never resized."""
    write_model(directory / "model", vocab_size=270)
    assert_refused(directory, BundleError, "sid.tokens[2]: '<c_", "beyond the head's 270 rows", "resize the model")


@pytest.mark.parametrize(
    ("layout", "level"), [((4, 5, 6), 3), ((4, 5, 5), 2)], ids=["a whole level is unknown", "one code is unknown"]
)
def test_sid_tokens_that_are_unknown_text(directory: Path, layout: tuple[int, ...], level: int) -> None:
    """Such a tokenizer gives one id to all that it does not know, be it many codes or one."""
    make_tokenizer(SidLayout(layout)).save_pretrained(directory / "model")
    templates = ["<a_{code}>", "<b_{code}>", "<z_{code}>" if level == 3 else "<c_{code}>"]
    write_toml(directory, sid={"tokens": templates})
    assert_refused(directory, BundleError, "sid.tokens[2]: '<", "is id 0, which other text shares", "correct the")


def test_a_code_that_no_item_uses_needs_no_token(tmp_path: Path) -> None:
    """A codebook may be larger than what the tokenizer knows of it."""
    write_bundle(tmp_path)
    sids, item_ids = small_rows()
    source = {item: [f"<x_{code}>" for code in sid] for item, sid in zip(item_ids, sids.tolist(), strict=True)}
    (tmp_path / "items.json").write_text(json.dumps(source))
    write_toml(tmp_path, catalog={"path": "items.json", "codebook_sizes": [16, 16, 16]})
    assert load_bundle(tmp_path).catalog.layout.codebook_sizes == (16, 16, 16)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("[]", ["items.json", "give one object"]),
        ('{"i": ["<a_1>"], "j": ["<a_1>", "<b_2>"]}', ["items.json"]),
        ('{"i": ["<a_1>"], "i": ["<a_2>"]}', ["items.json", "item i: has two SIDs"]),
    ],
    ids=["no object", "ragged", "two SIDs"],
)
def test_a_source_file_that_makes_no_catalogue(directory: Path, content: str, parts: list[str]) -> None:
    (directory / "items.json").write_text(content)
    write_toml(directory, catalog={"path": "items.json"})
    assert_refused(directory, CatalogError, *parts)
    with pytest.raises(SetupError, match=re.escape(parts[0])):
        check_setup(directory)


def test_codebook_sizes_that_are_none(directory: Path) -> None:
    (directory / "items.json").write_text('{"i": ["<a_1>", "<b_1>", "<c_1>"]}')
    write_toml(directory, catalog={"path": "items.json", "codebook_sizes": [4, 0, 6]})
    assert_refused(directory, BundleError, str(directory / "bundle.toml"), "catalog.codebook_sizes[1]: 0; give 1")


def test_an_altered_catalogue(directory: Path) -> None:
    path = directory / "catalog" / "trie_codes_1.npy"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    assert_refused(directory, CatalogError, str(path), "checksum is wrong", "copy the catalogue again")
    with pytest.raises(SetupError, match="checksum is wrong"):
        check_setup(directory)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"model_type": "gpt2"}, ["model_type is 'gpt2'", "qwen3"]),
        ({"dtype": "float16"}, ["dtype is 'float16'", "bfloat16"]),
        ({"num_hidden_layers": 3}, ["model.layers.2", "is missing"]),
        ({"num_hidden_layers": 1}, ["model.layers.1", "are not of a plain qwen3 decoder"]),
        ({"vocab_size": 274}, ["has shape (280, 32)", "(274, 32)"]),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_model_config_that_does_not_fit(directory: Path, changes: dict[str, Any], parts: list[str]) -> None:
    change_json(directory / "model" / "config.json", **changes)
    assert_refused(directory, CheckpointError, str(directory / "model"), *parts)


def test_a_checkpoint_without_its_head(directory: Path) -> None:
    change_weights(directory, lambda tensors: tensors.pop("lm_head.weight"))
    assert_refused(directory, CheckpointError, str(directory / "model"), "lm_head.weight is missing")


def test_weights_of_another_dtype(directory: Path) -> None:
    change_weights(directory, lambda tensors: tensors.update({n: t.half() for n, t in tensors.items()}))
    assert_refused(directory, CheckpointError, "model.safetensors", "is stored as F16", "convert the checkpoint")


def test_pickled_weights_are_never_read(directory: Path) -> None:
    """Reading this one would raise KeyboardInterrupt."""

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return exec, ("raise KeyboardInterrupt",)

    (directory / "model" / "model.safetensors").unlink()
    torch.save({"weight": Bomb()}, directory / "model" / "pytorch_model.bin")
    assert_refused(directory, CheckpointError, "only pickled weights (pytorch_model.bin)", "save_pretrained")


@pytest.mark.parametrize(
    ("name", "content"),
    [("tokenizer.json", None), ("tokenizer.json", "{"), ("tokenizer.json", "null"), ("tokenizer_config.json", "[]")],
    ids=["missing", "no JSON", "null", "config is a list"],
)
def test_a_broken_tokenizer(directory: Path, name: str, content: str | None) -> None:
    path = directory / "model" / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert_refused(directory, CheckpointError, str(directory / "model"), "no readable tokenizer", "copy tokenizer.json")


def test_a_tokenizer_that_fails_at_its_work(directory: Path) -> None:
    path = directory / "model" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": [1]}))
    assert_refused(directory, CheckpointError, str(directory / "model"), "a tokenizer that cannot encode", "copy")


def test_sampling_defaults_change_no_answer(directory: Path) -> None:
    """Published checkpoints carry such defaults, and beam searches have obeyed them."""
    plain = answer_of(load_bundle(directory))
    (directory / "model" / "generation_config.json").write_text(
        json.dumps({"do_sample": True, "top_k": 1, "top_p": 0.01, "temperature": 9.0, "num_beams": 2})
    )
    assert answer_of(load_bundle(directory)) == plain
    assert len(plain) == 9


def test_equal_content_has_an_equal_version(directory: Path, tmp_path: Path) -> None:
    bundle, other = load_bundle(directory), load_bundle(write_bundle(tmp_path / "elsewhere"))
    assert (bundle.version, bundle.catalog.version) == (other.version, other.catalog.version)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda directory: change_weights(directory, lambda tensors: tensors["model.norm.weight"][3].add_(1e-3)),
        lambda directory: change_json(directory / "model" / "config.json", rms_norm_eps=1e-5),
        lambda directory: change_json(directory / "model" / "tokenizer.json", normalizer={"type": "NFC"}),
        lambda directory: write_toml(directory, prompt={"prefix": "<bos>the"}),
        lambda directory: write_toml(directory, prompt={"max_history": 5}),
        lambda directory: write_toml(directory, search={"score_space": "CATALOG"}),
        lambda directory: write_toml(directory, model={"dtype": "bfloat16"}),
        lambda directory: write_toml(directory, bundle={"version": "v2"}),
    ],
    ids=["weight", "config", "tokenizer", "prompt text", "max_history", "score_space", "dtype", "label"],
)
def test_changed_content_has_another_version(directory: Path, spoil: Callable[[Path], object]) -> None:
    before = load_bundle(directory)
    spoil(directory)
    after = load_bundle(directory)
    assert after.version != before.version
    assert after.catalog.version == before.catalog.version


def test_a_label_leads_the_version(directory: Path) -> None:
    write_toml(directory, bundle={"version": "2026-01"})
    assert re.fullmatch(r"2026-01-[0-9a-f]{12}", load_bundle(directory).version)


def test_the_newest_known_items_make_the_prompt(directory: Path) -> None:
    """max_history counts known items; unknown ones are skipped wherever they stand."""
    bundle = load_bundle(directory)
    sids, item_ids = small_rows()
    taken = [3, 1, 4, 15, 9, 26, 5, 35]
    history = [item_ids[row] for row in taken]
    history[4:4] = ["gone", "gone-too"]
    prompt, num_unknown = bundle.history_prompt((*history, "gone"))
    assert num_unknown == 3
    np.testing.assert_array_equal(prompt, bundle.template.build(sids[taken[-6:]].astype(np.int32)))
    assert len(prompt) == 1 + 6 * LAYOUT.num_levels


def test_a_bundle_may_refuse_unknown_items(directory: Path) -> None:
    write_toml(directory, prompt={"unknown_items": "refuse"})
    bundle = load_bundle(directory)
    with pytest.raises(InvalidRequest) as caught:
        bundle.history_prompt(("gone", "item-001", "gone-too"))
    assert [violation.field for violation in caught.value.violations] == ["history.item_ids[0]", "history.item_ids[2]"]
    assert "'gone-too' is not in the catalogue; leave it out" in caught.value.violations[1].description
    assert bundle.history_prompt(("item-001",))[1] == 0
