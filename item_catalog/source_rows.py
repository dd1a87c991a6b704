"""A table as somebody wrote it -> rows of item ids and SIDs that a catalogue can be built from.

The table has a column `item_id`, and the SIDs either as one column `sid` (a list of codes, or text of codes one after
another) or as columns `sid_0`, `sid_1`, ... A code is an integer, or a token of text such as "<a_12>": its code is the
integer it ends in, and what stands around the integer must be the same for all items at a level.

Errors name the row, counted from 0 without any header, and its item. This module opens no file.
"""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from item_catalog.errors import CatalogError
from item_catalog.id_columns import IdColumn, id_column

# Text around the integer may not look like a part of the number: "-3", "1.5" and "1e5" are no codes.
_CODE_TEXT = r"^(?P<prefix>(?:[^0-9.+\-\s].*?)?)(?P<code>[0-9]+)(?P<suffix>[^0-9]*)$"
_MAX_CODE_DIGITS = 9
_DECIMAL = r"^(0|-?[1-9][0-9]{0,18})$"
_LEVEL_COLUMN = re.compile(r"sid_[0-9]+")


class SourceRows(NamedTuple):
    """What a source holds, in its own order.

    item_ids: int64 [n] when every id is an integer, or text that spells one as `str` would; else Arrow strings [n].
    sids: int64 [n, levels], not yet held against any codebook.
    """

    item_ids: IdColumn
    sids: NDArray[np.int64]


def is_read(column_name: str) -> bool:
    """Whether a column of this name says anything about items and SIDs."""
    return column_name in ("item_id", "sid") or _LEVEL_COLUMN.fullmatch(column_name) is not None


def rows_of_table(table: pa.Table) -> SourceRows:
    """Raises CatalogError naming the row, the column, the value and the remedy."""
    written_ids = _column(table, "item_id")
    if not len(written_ids):
        raise CatalogError("no rows; give at least one item")
    levels = _level_columns(table, written_ids)
    codes = [_codes(name, column, written_ids) for name, column in levels.items()]
    return SourceRows(_item_ids(written_ids), np.stack(codes, axis=1))


def _column(table: pa.Table, name: str) -> pa.Array:
    found = table.column_names.count(name)
    if found != 1:
        names = ", ".join(table.column_names)
        raise CatalogError(f"{found} columns named {name!r} among: {names}; give exactly one")
    chunks = table.column(name)
    if pa.types.is_string(chunks.type):
        chunks = chunks.cast(pa.large_string())  # one array of all chunks may be beyond 2**31 bytes
    column = chunks.combine_chunks()
    if column.null_count:
        row = _first(pc.is_null(column))
        raise CatalogError(f"row {row}: {name} is null; give every row one")
    return column


def _level_columns(table: pa.Table, item_ids: pa.Array) -> dict[str, pa.Array]:
    """One column for each level, by the name that errors give it."""
    names = [name for name in table.column_names if _LEVEL_COLUMN.fullmatch(name)]
    if names and "sid" in table.column_names:
        raise CatalogError(f"both sid and {names[0]}; give the SIDs once")
    if not names:
        return _split_levels(_column(table, "sid"), item_ids)
    expected = [f"sid_{level}" for level in range(len(names))]
    if sorted(names) != sorted(expected):
        raise CatalogError(f"columns {', '.join(names)}; name the {len(names)} levels {', '.join(expected)}")
    return {name: _column(table, name) for name in expected}


def _split_levels(sids: pa.Array, item_ids: pa.Array) -> dict[str, pa.Array]:
    """A column of lists, or of text, cut into one column for each level."""
    if _is_text(sids):
        spaced = pc.replace_substring(sids, "><", "> <")
        sids = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(spaced))
    if not (pa.types.is_list(sids.type) or pa.types.is_large_list(sids.type) or pa.types.is_fixed_size_list(sids.type)):
        raise CatalogError(f"sid is a column of {sids.type}; give lists of codes, or text")
    lengths = pc.list_value_length(sids).to_numpy(zero_copy_only=False)
    num_levels = int(lengths[0])
    if not num_levels or (lengths != num_levels).any():
        row = int(np.argmax((lengths == 0) | (lengths != num_levels)))
        raise CatalogError(
            f"{_place(row, item_ids)}: sid has {lengths[row]} codes, row 0 has {num_levels}; "
            "give every row one for each level"
        )
    flat = pc.list_flatten(sids)
    rows_start = np.arange(0, len(flat), num_levels)
    return {f"sid[{level}]": flat.take(pa.array(rows_start + level)) for level in range(num_levels)}


def _codes(name: str, column: pa.Array, item_ids: pa.Array) -> NDArray[np.int64]:
    """The codes of one level, int64 [n]."""
    if column.null_count:
        row = _first(pc.is_null(column))
        raise CatalogError(f"{_place(row, item_ids)}: {name} is null; give every row a code there")
    if pa.types.is_integer(column.type):
        codes: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        return codes
    if _is_text(column):
        return _codes_of_tokens(name, column, item_ids)
    row = max(0, _first(pc.not_equal(pc.floor(column), column))) if pa.types.is_floating(column.type) else 0
    raise CatalogError(
        f"{_place(row, item_ids)}: {name} is {column[row].as_py()!r} ({column.type}); "
        "give an integer, or a token such as <a_12>"
    )


def _codes_of_tokens(name: str, tokens: pa.Array, item_ids: pa.Array) -> NDArray[np.int64]:
    parts = pc.extract_regex(pc.utf8_trim_whitespace(tokens), _CODE_TEXT)
    prefixes, digits, suffixes = (pc.struct_field(parts, part) for part in ("prefix", "code", "suffix"))
    is_bare = pc.equal(prefixes, "")
    is_code = pc.and_(
        pc.less_equal(pc.utf8_length(digits), _MAX_CODE_DIGITS),
        pc.or_(pc.invert(is_bare), pc.equal(suffixes, "")),
    )
    is_code = pc.fill_null(is_code, False)
    if not pc.all(is_code).as_py():
        row = _first(pc.invert(is_code))
        raise CatalogError(
            f"{_place(row, item_ids)}: {name} is {tokens[row].as_py()!r}; "
            "give a code such as 12, or a token such as <a_12>"
        )
    is_other = pc.or_(pc.not_equal(prefixes, prefixes[0]), pc.not_equal(suffixes, suffixes[0]))
    if pc.any(is_other).as_py():
        row = _first(is_other)
        raise CatalogError(
            f"{_place(row, item_ids)}: {name} is {tokens[row].as_py()!r}, but row 0 has {tokens[0].as_py()!r}; "
            "tokens of one level differ only in their integer"
        )
    codes: NDArray[np.int64] = digits.cast(pa.int64()).to_numpy()
    return codes


def _item_ids(written: pa.Array) -> IdColumn:
    if pa.types.is_integer(written.type):
        return id_column(written.to_numpy())
    if not _is_text(written):
        raise CatalogError(f"item_id is a column of {written.type}; give integers or text")
    if not pc.all(pc.match_substring_regex(written, _DECIMAL)).as_py():
        return written
    try:
        integers: NDArray[np.int64] = written.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # too large for an integer: it stays text
        return written
    return integers


def _is_text(column: pa.Array) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _first(mask: pa.Array) -> int:
    return int(pc.index(mask, pa.scalar(True)).as_py())


def _place(row: int, item_ids: pa.Array) -> str:
    return f"row {row} (item {item_ids[row].as_py()!r})"
