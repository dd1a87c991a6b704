"""What every command of ours does alike when it cannot do what it was asked."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from item_catalog.errors import CatalogError
from recall_service.errors import RecallError


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What is wrong with the caller's files or settings is a line on stderr and exit code 2, not a traceback."""
    try:
        yield
    except (RecallError, CatalogError) as error:
        typer.echo(f"error: {printable(str(error))}", err=True)
        raise typer.Exit(2) from None


def printable(text: str) -> str:
    """`text` as one line that no terminal obeys; parts of it may come from files and callers of any kind."""
    return "".join(character if character.isprintable() else "?" for character in text)
