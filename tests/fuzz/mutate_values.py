"""Values of JSON and TOML, spoilt at one place of the tree, and written down again."""

import copy
import json
import random
import re
from typing import Any

from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.odd_values import FLOATS, odd_integer, odd_text, odd_value


def mutate_value(generator: random.Random, value: Any) -> Any:
    """A copy of `value` with one to three changes somewhere in it."""
    spoilt = copy.deepcopy(value)
    for _ in range(generator.choice((1, 1, 2, 3))):
        spoilt = _change(generator, spoilt)
    return spoilt


def spoilt_json(generator: random.Random, value: Any) -> bytes:
    """Text of JSON, most of it well formed; NaN, lone surrogates and numbers of any length included."""
    text = json.dumps(mutate_value(generator, value), ensure_ascii=generator.random() < 0.7)
    return _perhaps_spoil(generator, text)


def spoilt_toml(generator: random.Random, value: dict[str, Any]) -> bytes:
    """Text of TOML, most of it well formed."""
    spoilt = mutate_value(generator, value)
    return _perhaps_spoil(generator, toml_text(spoilt if isinstance(spoilt, dict) else {"": spoilt}))


def toml_text(document: dict[str, Any]) -> str:
    """A document in TOML's own words; what TOML cannot say (null) becomes text."""
    return "".join(f"{_toml_key(key)} = {_toml(value)}\n" for key, value in document.items())


def _change(generator: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and generator.random() < 0.9:
        return _change_object(generator, value)
    if isinstance(value, list) and value and generator.random() < 0.8:
        return _change_list(generator, value)
    if generator.random() < 0.5:
        return _alike(generator, value)
    return odd_value(generator)


def _change_object(generator: random.Random, value: dict[str, Any]) -> dict[str, Any]:
    key = generator.choice(list(value))
    kind = generator.randrange(10)
    if kind == 0:
        del value[key]
    elif kind == 1:
        value[odd_text(generator)] = odd_value(generator)
    elif kind == 2:
        value[odd_text(generator)] = value.pop(key)
    elif kind == 3:
        value[key] = copy.deepcopy(value[generator.choice(list(value))])
    else:
        value[key] = _change(generator, value[key])
    return value


def _change_list(generator: random.Random, value: list[Any]) -> list[Any]:
    at, kind = generator.randrange(len(value)), generator.randrange(8)
    if kind == 0:
        del value[at]
    elif kind == 1:
        value.insert(at, odd_value(generator))
    elif kind == 2:
        value.extend(value[at:] * generator.choice((1, 30)))
    elif kind == 3:
        generator.shuffle(value)
    else:
        value[at] = _change(generator, value[at])
    return value


def _alike(generator: random.Random, value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return odd_integer(generator)
    if isinstance(value, float):
        return generator.choice(FLOATS)
    if isinstance(value, str):
        at = generator.randrange(len(value) + 1)
        return generator.choice((odd_text(generator), value[:at] + odd_text(generator) + value[at:], value[:at]))
    return odd_value(generator)


def _perhaps_spoil(generator: random.Random, text: str) -> bytes:
    chance = generator.random()
    if chance < 0.02:  # deeper than any parser's stack, longer than what Python turns into an integer
        start, end = generator.choice([found.span() for found in re.finditer(r"[0-9]+|\"[^\"]*\"", text)] or [(0, 0)])
        text = text[:start] + generator.choice(("[" * 100_000, '{"a":' * 50_000, "9" * 5_000, "1e99999")) + text[end:]
    data = text.encode(errors="surrogatepass")
    return mutate_bytes(generator, data) if chance > 0.75 else data


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return '"null"' if value is None else json.dumps(value)


def _toml_key(key: str) -> str:
    return json.dumps(key)
