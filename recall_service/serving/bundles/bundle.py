"""A bundle: model, SID tokens, prompt and catalogue, loaded and checked against each other before anyone is served."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.sources.files import read_source
from item_catalog.storage.directory import open_catalog
from item_catalog.updating.apply import Applied
from item_catalog.updating.store import CatalogStore, Snapshot, is_store
from item_catalog.updating.updates import ItemUpdates
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.loader import load_decoder
from recall_service.errors import BundleError, InvalidRequest, SetupError, Violation
from recall_service.serving.bundles.bundle_file import BUNDLE_FILE, BundleFile, CatalogSection, read_bundle_file
from recall_service.serving.bundles.prompt import PromptTemplate, check_template, make_template
from recall_service.serving.bundles.sid_tokens import check_tokens, sid_token_ids
from recall_service.serving.bundles.text_encoder import HuggingFaceEncoder


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """What is served under one name. Immutable; `version` and `catalog.version` follow from the content.

    store, snapshot: where the catalogue lies and what of that it is; None for one that is in no store.
    """

    file: BundleFile
    directory: Path
    version: str
    model: Decoder
    catalog: Catalog
    constraint: TrieConstraint
    template: PromptTemplate
    store: CatalogStore | None = None
    snapshot: Snapshot | None = None

    @property
    def name(self) -> str:
        """As requests give it."""
        return self.file.bundle.name

    @property
    def max_prompt_tokens(self) -> int:
        """Longest prompt after which the model still has positions for a whole SID."""
        return self.model.config.max_positions - self.catalog.layout.num_levels + 1

    def history_prompt(self, item_ids: tuple[str, ...]) -> tuple[NDArray[np.int64], int]:
        """Item ids, oldest first -> token ids int64 [prompt_len], and how many items the catalogue does not know.

        Raises InvalidRequest when the bundle refuses unknown items.
        """
        positions = self.catalog.find(item_ids)
        known = positions >= 0
        num_unknown = int((~known).sum())
        if num_unknown and self.file.prompt.unknown_items == "refuse":
            raise InvalidRequest(
                [
                    Violation(
                        f"history.item_ids[{index}]", f"{item_ids[index]!r} is not in the catalogue; leave it out"
                    )
                    for index in np.flatnonzero(~known)
                ]
            )
        newest = positions[known][-self.file.prompt.max_history :]
        return self.template.build(self.catalog.sids_of(newest)), num_unknown

    def with_snapshot(self, snapshot: Snapshot) -> "Bundle":
        """The same bundle over what its catalogue's store holds. A trie that is this one's keeps its constraint.

        Raises BundleError when the model cannot search it: other codebooks, or a code without a token.
        """
        catalog = snapshot.catalog
        if catalog.layout != self.catalog.layout:
            raise BundleError(
                f"catalogue {catalog.version}: codebooks {catalog.layout.codebook_sizes}; those of bundle {self.name} "
                f"are {self.catalog.layout.codebook_sizes}: publish it with the same, or reload the bundle"
            )
        constraint = self.constraint
        if catalog.trie is not self.catalog.trie:
            check_tokens(self.template.level_tokens, self.file.sid.tokens, catalog.trie)
            constraint = TrieConstraint(catalog.trie, self.template.level_tokens, self.model.device)
        return replace(self, catalog=catalog, constraint=constraint, snapshot=snapshot)

    def updated(self, updates: ItemUpdates) -> tuple["Bundle", Applied]:
        """The same bundle with updates, which are durable in its store, and with what others wrote there before them.

        It is made before they are written: what it cannot be made of never is. Takes the time of a merge, so is for a
        thread. Raises as CatalogStore.apply does, BundleError as `with_snapshot` does, and BundleError when the store
        has gone on to another version.
        """
        assert self.store is not None, "its catalogue is in a store"
        assert self.snapshot is not None, "its catalogue is in a store"
        line, made = self.snapshot.head.line, self

        def make(after: Snapshot) -> None:
            nonlocal made
            if after.head.line != line:
                raise BundleError(f"version {after.head.base} has become current in the store meanwhile; ask again")
            made = self.with_snapshot(after)

        snapshot, applied = self.store.apply(updates, self.snapshot, make)
        return replace(made, snapshot=snapshot), applied


def load_bundle(directory: Path, device: str = "cpu") -> Bundle:
    """Load the bundle of `directory`/bundle.toml.

    Raises BundleError, CheckpointError or CatalogError, each naming the file or key, the value and the remedy.
    """
    file = read_bundle_file(directory)
    model_path = directory / file.model.path
    if not os.path.isdir(model_path):  # Path.is_dir raises for a name that is too long
        raise BundleError(f"{directory / BUNDLE_FILE}: model.path {file.model.path!r} is no directory; correct it")
    model = load_decoder(model_path, file.model.dtype, device)
    store, snapshot = _open_store(directory, file.catalog)
    catalog = snapshot.catalog if snapshot else _load_catalog(directory, file.catalog)
    try:
        bundle = _assemble(directory, file, model, catalog, HuggingFaceEncoder(model_path))
        return replace(bundle, store=store, snapshot=snapshot)
    except BundleError as error:
        raise BundleError(f"{directory / BUNDLE_FILE}: {error}") from None


def _open_store(directory: Path, section: CatalogSection) -> tuple[CatalogStore, Snapshot] | tuple[None, None]:
    """The store at catalog.path and its current version with all updates, if there is one."""
    path = directory / section.path
    if not (os.path.isdir(path) and is_store(path)):
        return None, None
    if section.codebook_sizes is not None:
        raise BundleError(f"{directory / BUNDLE_FILE}: catalog.codebook_sizes is for a source file; remove it")
    store = CatalogStore(path)
    return store, store.load()


def _load_catalog(directory: Path, section: CatalogSection) -> Catalog:
    path = directory / section.path
    if os.path.isdir(path):
        if section.codebook_sizes is not None:
            raise BundleError(f"{directory / BUNDLE_FILE}: catalog.codebook_sizes is for a source file; remove it")
        return open_catalog(path)
    if not os.path.isfile(path):
        raise BundleError(
            f"{directory / BUNDLE_FILE}: catalog.path {section.path!r} does not exist; build it with "
            "item-catalog build, or name a source file"
        )
    try:
        layout = SidLayout(section.codebook_sizes) if section.codebook_sizes is not None else None
    except CatalogError as error:
        raise BundleError(f"{directory / BUNDLE_FILE}: catalog.{error}") from None
    source = read_source(path)
    try:
        return build_catalog(layout, source.sids, source.item_ids, source.attributes)
    except CatalogError as error:
        raise CatalogError(f"{path}: {error}") from None


def _assemble(
    directory: Path, file: BundleFile, model: Decoder, catalog: Catalog, encoder: HuggingFaceEncoder
) -> Bundle:
    vocab_size = model.config.vocab_size
    level_tokens = sid_token_ids(encoder, file.sid.tokens, catalog.trie, vocab_size)
    template = make_template(file.prompt, encoder, level_tokens, vocab_size)
    sample = catalog.trie.leaf_sids(np.linspace(0, catalog.trie.num_leaves - 1, num=3).astype(np.int64))
    check_template(template, file.prompt, encoder, file.sid.tokens, sample)
    bundle = Bundle(
        file=file,
        directory=directory,
        version=_version(file, directory / file.model.path),
        model=model,
        catalog=catalog,
        constraint=TrieConstraint(catalog.trie, level_tokens, model.device),
        template=template,
    )
    _check_lengths(bundle)
    return bundle


def _check_lengths(bundle: Bundle) -> None:
    section = bundle.file.prompt
    longest = bundle.template.length(section.max_history)
    if longest > bundle.max_prompt_tokens:
        raise BundleError(
            f"prompt.max_history: {section.max_history} items make {longest} tokens, the model reaches "
            f"{bundle.max_prompt_tokens}; lower it"
        )
    if section.empty_history == "serve" and not bundle.template.length(0):
        raise BundleError("prompt.empty_history: 'serve' needs a prefix or suffix, or the prompt is empty; add one")


def _version(file: BundleFile, model_path: Path) -> str:
    """The bundle's own label, if any, and a digest of everything but the catalogue: text, weights, tokenizer."""
    digest = xxhash.xxh3_128(file.model_dump_json(exclude={"catalog"}).encode())
    for path in sorted(model_path.iterdir()):
        if path.suffix in (".json", ".safetensors", ".model", ".txt") and path.is_file():
            digest.update(path.name.encode())
            with path.open("rb") as content:
                while chunk := content.read(1 << 24):
                    digest.update(chunk)
    return "-".join(part for part in (file.bundle.version, digest.hexdigest()[:12]) if part)


def check_setup(directory: Path, device: str = "cpu") -> Bundle:
    """Load a bundle and turn whatever is wrong with it, its catalogue included, into a SetupError."""
    try:
        return load_bundle(directory, device)
    except CatalogError as error:
        raise SetupError(str(error)) from None
