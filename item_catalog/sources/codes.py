"""The SIDs of a source, batch by batch -> one array of codes.

A SID is one column `sid` (a list of codes, or text of codes one after another) or columns `sid_0`, `sid_1`, ... A code
is an integer, or a token of text such as "<a_12>": its code is the integer it ends in, and what stands around the
integer must be the same for all items at a level.
"""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from item_catalog.errors import CatalogError
from item_catalog.sid import MAX_CODEBOOK_SIZE
from item_catalog.sources.batch import SourceBatch, first, is_text

# Text around the integer may not look like a part of the number: "-3", "1.5" and "1e5" are no codes.
_CODE_TEXT = r"^(?P<prefix>(?:[^0-9.+\-\s].*?)?)(?P<code>[0-9]+)(?P<suffix>[^0-9]*)$"
_MAX_CODE_DIGITS = 9
_LEVEL_COLUMN = re.compile(r"sid_[0-9]+")


class _Token(NamedTuple):
    """The first token of a level, which tells what those after it look like."""

    text: str
    prefix: str
    suffix: str


def holds_codes(column_name: str) -> bool:
    """Whether a column of this name says anything about SIDs."""
    return column_name == "sid" or _LEVEL_COLUMN.fullmatch(column_name) is not None


class CodeCollector:
    """Codes of the batches so far.

    codes: uint16 [num_rows, levels], not yet held against any codebook; None before the first batch.
    """

    def __init__(self, num_rows: int) -> None:
        self.codes: NDArray[np.uint16] | None = None
        self._num_rows = num_rows
        self._first_tokens: dict[int, _Token] = {}

    def add(self, batch: SourceBatch) -> None:
        """Raises CatalogError naming the row, the column, the value and the remedy."""
        levels = self._level_columns(batch)
        if self.codes is None:
            self.codes = np.empty((self._num_rows, len(levels)), np.uint16)
        for level, (name, column) in enumerate(levels.items()):
            self.codes[batch.rows, level] = self._codes_of(batch, level, name, column)

    def _level_columns(self, batch: SourceBatch) -> dict[str, pa.Array]:
        """One column for each level, by the name that errors give it."""
        names = [name for name in batch.table.column_names if _LEVEL_COLUMN.fullmatch(name)]
        if names and "sid" in batch.table.column_names:
            raise CatalogError(f"both sid and {names[0]}; give the SIDs once")
        if not names:
            return self._split_levels(batch)
        num_levels = len(names) if self.codes is None else self.codes.shape[1]
        expected = [f"sid_{level}" for level in range(num_levels)]
        if sorted(names) != sorted(expected):
            raise CatalogError(f"columns {', '.join(names)}; name the {num_levels} levels {', '.join(expected)}")
        return {name: batch.full_column(name) for name in expected}

    def _split_levels(self, batch: SourceBatch) -> dict[str, pa.Array]:
        """A column of lists, or of text, cut into one column for each level."""
        sids = batch.full_column("sid")
        if is_text(sids):
            spaced = pc.replace_substring(sids, "><", "> <")
            sids = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(spaced))
        kind = sids.type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            raise CatalogError(f"sid is a column of {kind}; give lists of codes, or text")
        lengths = pc.list_value_length(sids).to_numpy(zero_copy_only=False)
        num_levels = int(lengths[0]) if self.codes is None else self.codes.shape[1]
        if not num_levels or (lengths != num_levels).any():
            row = int(np.argmax((lengths == 0) | (lengths != num_levels)))
            raise CatalogError(
                f"{batch.place(row)}: sid has {lengths[row]} codes, row 0 has {num_levels}; "
                "give every row one for each level"
            )
        flat = pc.list_flatten(sids)
        rows_start = np.arange(0, len(flat), num_levels)
        return {f"sid[{level}]": flat.take(pa.array(rows_start + level)) for level in range(num_levels)}

    def _codes_of(self, batch: SourceBatch, level: int, name: str, column: pa.Array) -> NDArray[np.integer]:
        if column.null_count:
            row = first(pc.is_null(column))
            raise CatalogError(f"{batch.place(row)}: {name} is null; give every row a code there")
        if pa.types.is_integer(column.type):
            codes: NDArray[np.integer] = column.to_numpy()
        elif is_text(column):
            codes = self._codes_of_tokens(batch, level, name, column)
        else:
            row = max(0, first(pc.not_equal(pc.floor(column), column))) if pa.types.is_floating(column.type) else 0
            raise CatalogError(
                f"{batch.place(row)}: {name} is {column[row].as_py()!r} ({column.type}); "
                "give an integer, or a token such as <a_12>"
            )
        is_outside = (codes < 0) | (codes >= MAX_CODEBOOK_SIZE)
        if is_outside.any():
            row = int(np.argmax(is_outside))
            raise CatalogError(f"{batch.place(row)}: {name} is {codes[row]}; codes are 0 to {MAX_CODEBOOK_SIZE - 1}")
        return codes

    def _codes_of_tokens(self, batch: SourceBatch, level: int, name: str, tokens: pa.Array) -> NDArray[np.int64]:
        parts = pc.extract_regex(pc.utf8_trim_whitespace(tokens), _CODE_TEXT)
        prefixes, digits, suffixes = (pc.struct_field(parts, part) for part in ("prefix", "code", "suffix"))
        is_bare = pc.equal(prefixes, "")
        is_code = pc.and_(
            pc.less_equal(pc.utf8_length(digits), _MAX_CODE_DIGITS),
            pc.or_(pc.invert(is_bare), pc.equal(suffixes, "")),
        )
        is_code = pc.fill_null(is_code, False)
        if not pc.all(is_code).as_py():
            row = first(pc.invert(is_code))
            raise CatalogError(
                f"{batch.place(row)}: {name} is {tokens[row].as_py()!r}; "
                "give a code such as 12, or a token such as <a_12>"
            )
        like = self._first_tokens.setdefault(
            level, _Token(*(texts[0].as_py() for texts in (tokens, prefixes, suffixes)))
        )
        is_other = pc.or_(pc.not_equal(prefixes, like.prefix), pc.not_equal(suffixes, like.suffix))
        if pc.any(is_other).as_py():
            row = first(is_other)
            raise CatalogError(
                f"{batch.place(row)}: {name} is {tokens[row].as_py()!r}, but row 0 has {like.text!r}; "
                "tokens of one level differ only in their integer"
            )
        codes: NDArray[np.int64] = digits.cast(pa.int64()).to_numpy()
        return codes
