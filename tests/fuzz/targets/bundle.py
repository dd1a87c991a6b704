"""A bundle's other files: config.json, safetensors and their index, the tokenizer, and what bundle.toml points at."""

import json
import random
import shutil
import struct
from functools import partial
from pathlib import Path
from typing import Any

from item_catalog.errors import CatalogError
from recall_service.errors import SetupError
from recall_service.serving.bundles.bundle import load_bundle
from tests.fuzz.hostile import Hostile, refused
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_values import mutate_value, spoilt_json, spoilt_toml
from tests.fuzz.odd_values import odd_integer
from tests.serving.bundles import TOKEN_TEMPLATES, write_bundle

_CONFIG, _WEIGHTS, _INDEX = "model/config.json", "model/model.safetensors", "model/model.safetensors.index.json"
_TOKENIZER_FILES = ("model/tokenizer.json", "model/tokenizer_config.json")
_BUNDLE = {
    "bundle": {"name": "tiny"},
    "model": {"path": "model"},
    "catalog": {"path": "catalog"},
    "sid": {"tokens": list(TOKEN_TEMPLATES)},
    "search": {"beam_width": 12, "max_beam_width": 64, "num_items": 10, "max_num_items": 64},
    "prompt": {"prefix": "<bos>", "item": "{sid}", "max_history": 6},
}


class Target:
    """A bundle that is loaded, or one line of error; nothing unpickled, no memory for what is only claimed."""

    #: Which file is spoilt, by weight: reading a tokenizer takes ten times as long as reading the rest.
    PLACES = (*(_CONFIG,) * 8, *(_WEIGHTS,) * 6, *("bundle.toml",) * 3, _INDEX, *_TOKENIZER_FILES)

    def __init__(self, directory: Path) -> None:
        self._valid = write_bundle(directory / "valid")
        self._spoilt = directory / "spoilt"
        self._contents = {place: (self._valid / place).read_bytes() for place in set(self.PLACES) - {_INDEX}}
        weight_map = dict.fromkeys(_header_of(self._contents[_WEIGHTS]), "model-00001-of-00001.safetensors")
        self._contents[_INDEX] = json.dumps({"weight_map": weight_map}).encode()
        shutil.copytree(self._valid, self._spoilt)

    def make(self, generator: random.Random) -> Hostile:
        place = generator.choice(self.PLACES)
        content = self._contents[place]
        if place == "bundle.toml":
            return Hostile(place, spoilt_toml(generator, _BUNDLE))
        if place == _WEIGHTS:
            return Hostile(place, _spoilt_weights(generator, content))
        return Hostile(place, spoilt_json(generator, json.loads(content)))

    def check(self, hostile: Hostile) -> None:
        (self._spoilt / hostile.place).write_bytes(hostile.data)
        try:
            if hostile.place == _INDEX:
                (self._spoilt / _WEIGHTS).rename(self._spoilt / "model/model-00001-of-00001.safetensors")
            refused((SetupError, CatalogError), partial(load_bundle, self._spoilt))
        finally:
            self._restore(hostile.place)

    def close(self) -> None:
        pass

    def _restore(self, place: str) -> None:
        if place == _INDEX:
            (self._spoilt / _INDEX).unlink()
            (self._spoilt / "model/model-00001-of-00001.safetensors").rename(self._spoilt / _WEIGHTS)
        else:
            (self._spoilt / place).write_bytes(self._contents[place])


def _header_of(weights: bytes) -> dict[str, Any]:
    """The JSON that a safetensors file begins with, after its length in eight bytes."""
    length = struct.unpack_from("<Q", weights)[0]
    header: dict[str, Any] = json.loads(weights[8 : 8 + length])
    header.pop("__metadata__", None)
    return header


def _spoilt_weights(generator: random.Random, weights: bytes) -> bytes:
    if generator.random() < 0.3:
        return mutate_bytes(generator, weights)
    header = mutate_value(generator, _header_of(weights))
    text = json.dumps(header).encode(errors="surrogatepass")
    length = len(text) if generator.random() < 0.9 else odd_integer(generator) % 2**64
    start = 8 + struct.unpack_from("<Q", weights)[0]
    return struct.pack("<Q", length) + text + weights[start:]
