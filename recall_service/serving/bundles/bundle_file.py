"""bundle.toml: what a bundle is made of, as typed fields. Only the text is checked here, the parts when they load."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from recall_service.engine.request import ScoreSpace
from recall_service.errors import BundleError

BUNDLE_FILE = "bundle.toml"
Glue = str | list[int]
Count = Annotated[int, Field(strict=True, ge=1)]
_MAX_TOKEN_ID = 2**31 - 1


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BundleSection(_Section):
    """[bundle]. `version` is a label of yours; a digest of the content is always added to it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    version: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")


class ModelSection(_Section):
    """[model]. `path`: a Hugging Face checkpoint directory, relative to bundle.toml."""

    path: str = "model"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"


class CatalogSection(_Section):
    """[catalog]. `path`: a built catalogue, or a source file that is built at load, relative to bundle.toml.

    `codebook_sizes` is for a source file; a built catalogue has its own.
    """

    path: str = "catalog"
    codebook_sizes: tuple[int, ...] | None = None


class SidSection(_Section):
    """[sid]. `tokens`: per level, the text of the token of a code, with {code} where the number goes."""

    tokens: list[str] = Field(min_length=1, max_length=8)

    @model_validator(mode="after")
    def _one_code_each(self) -> "SidSection":
        for level, template in enumerate(self.tokens):
            if template.count("{code}") != 1:
                raise ValueError(f"tokens[{level}] is {template!r}; it must hold {{code}} exactly once")
        return self


class SearchSection(_Section):
    """[search]. Defaults and limits of a request.

    `proven_row_budget`: after how many rows a PROVEN search proves no more; 0 leaves it to the engine.
    """

    score_space: ScoreSpace = ScoreSpace.VOCABULARY
    beam_width: Count = 200
    max_beam_width: Count = 400
    num_items: Count = 100
    max_num_items: Count = 400
    proven_row_budget: int = Field(default=0, strict=True, ge=0)

    @model_validator(mode="after")
    def _defaults_within_limits(self) -> "SearchSection":
        for name in ("beam_width", "num_items"):
            default, limit = getattr(self, name), getattr(self, f"max_{name}")
            if default > limit:
                raise ValueError(f"{name} is {default}, over max_{name} {limit}; lower it, or raise the limit")
        return self


class PromptSection(_Section):
    """[prompt]. prefix + item (+ separator + item)* + suffix; text or token ids, `item` text with {sid} in it."""

    prefix: Glue = ""
    item: str = "{sid}"
    separator: Glue = ""
    suffix: Glue = ""
    max_history: Count = 50
    unknown_items: Literal["skip", "refuse"] = "skip"
    empty_history: Literal["refuse", "serve"] = "refuse"

    @field_validator("prefix", "separator", "suffix", mode="before")
    @classmethod
    def _text_or_token_ids(cls, value: object) -> object:
        """Said here, for the validation of a union complains once for each of its kinds."""
        if isinstance(value, str) or (isinstance(value, list) and all(map(_is_token_id, value))):
            return value
        raise ValueError(f"give text, or a list of token ids, 0 to {_MAX_TOKEN_ID}")

    @model_validator(mode="after")
    def _one_sid(self) -> "PromptSection":
        if self.item.count("{sid}") != 1:
            raise ValueError(f"item is {self.item!r}; it must hold {{sid}} exactly once")
        return self


class BundleFile(_Section):
    """The whole file."""

    bundle: BundleSection
    model: ModelSection = ModelSection()
    catalog: CatalogSection = CatalogSection()
    sid: SidSection
    search: SearchSection = SearchSection()
    prompt: PromptSection = PromptSection()


def read_bundle_file(directory: Path) -> BundleFile:
    """Read `directory`/bundle.toml. Raises BundleError naming the file, the key, the value and what is allowed."""
    path = directory / BUNDLE_FILE
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"{path}: no such file; a bundle is a directory that holds one") from None
    except (OSError, ValueError, RecursionError) as error:  # a number of 5,000 digits is TOML, and no int of Python's
        raise BundleError(f"{path}: not readable as TOML ({error}); correct it") from None
    try:
        return BundleFile.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(_problem(detail) for detail in error.errors())
        raise BundleError(f"{path}: {problems}") from None


def _is_token_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_TOKEN_ID


def _problem(detail: object) -> str:
    """One pydantic error as `section.key: value; remedy`."""
    assert isinstance(detail, dict)
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "missing":
        return f"{key} is missing; add it"
    if detail["type"] == "extra_forbidden":
        return f"{key} is no known key; remove it or correct its name"
    message = str(detail["msg"]).removeprefix("Value error, ")
    shown = "" if isinstance(detail["input"], dict) else f" is {detail['input']!r}"
    return f"{key}{shown}: {message}"
