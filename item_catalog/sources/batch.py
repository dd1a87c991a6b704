"""Some consecutive rows of a source, and how errors name them. Knows no file, and of columns only `item_id`."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from item_catalog.errors import CatalogError
from item_catalog.utf8 import are_utf8


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Rows as somebody wrote them; `first_row` is where in the source they begin, counted from 0."""

    table: pa.Table
    first_row: int

    def __len__(self) -> int:
        return self.table.num_rows  # type: ignore[no-any-return]

    @property
    def rows(self) -> slice:
        """Where in arrays over the whole source these rows are."""
        return slice(self.first_row, self.first_row + len(self))

    @property
    def item_ids(self) -> pa.Array:
        """The column `item_id`, without nulls."""
        return self.full_column("item_id")

    def column(self, name: str) -> pa.Array:
        """Raises CatalogError unless there is exactly one column `name`, and its text is UTF-8."""
        found = self.table.column_names.count(name)
        if found != 1:
            names = ", ".join(self.table.column_names)
            raise CatalogError(f"{found} columns named {name!r} among: {names}; give exactly one")
        chunks = self.table.column(name)
        if pa.types.is_string(chunks.type):
            chunks = chunks.cast(pa.large_string())  # one array of all chunks may be beyond 2**31 bytes
        column = chunks.combine_chunks()
        if is_text(column):
            is_sound = are_utf8(column)
            if not is_sound.all():
                row = self.first_row + int(np.argmin(is_sound))
                raise CatalogError(f"row {row}: {name} is no UTF-8; write text as UTF-8")
        return column

    def full_column(self, name: str) -> pa.Array:
        """As `column`; also raises CatalogError naming the first row in which it is null."""
        column = self.column(name)
        if column.null_count:
            row = self.first_row + first(pc.is_null(column))
            raise CatalogError(f"row {row}: {name} is null; give every row one")
        return column

    def place(self, row: int) -> str:
        """What errors call row `row` of these."""
        return f"row {self.first_row + row} (item {self.item_ids[row].as_py()!r})"


def is_text(column: pa.Array) -> bool:
    """Whether it holds plain strings."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def first(mask: pa.Array) -> int:
    """The first row where `mask` is true; -1 if it never is."""
    return int(pc.index(mask, pa.scalar(True)).as_py())
