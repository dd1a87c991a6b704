"""What the commands say on the terminal while they work, and when they fail. Knows no catalogue."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

from item_catalog.errors import CatalogError


@contextmanager
def progress(step: str) -> Iterator[Callable[[str], None]]:
    """Shows `step` on stderr while it runs, and behind it what it says of itself."""
    with Console(stderr=True).status(escape(step)) as status:
        yield lambda detail: status.update(escape(f"{step}: {detail}"))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """A CatalogError becomes one line on stderr and exit code 2."""
    try:
        yield
    except CatalogError as error:
        typer.echo(f"error: {printable(' '.join(str(error).split()))}", err=True)
        raise typer.Exit(2) from None


def printable(text: str) -> str:
    """What no terminal obeys: parts of it may come from files that strangers wrote."""
    return "".join(part if part.isprintable() else "?" for part in text)
