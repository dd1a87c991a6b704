"""Small files that are whole or not there, whatever happens, and locks that end with the process that holds them."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from item_catalog.errors import CatalogError

_LOCK_SECONDS = 60.0
_RETRY_SECONDS = 0.01


def create_empty(path: Path) -> None:
    """A new, empty file, on the disk with its name. Raises OSError, FileExistsError among them."""
    path.touch(exist_ok=False)
    flush_directory(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Put `text` in the place of what `path` holds: all of it, on the disk, or nothing. One writer at a time.

    Raises OSError; `path` then holds what it held, unless the disk refuses that too.
    """
    before = path.read_bytes() if path.exists() else None
    new = path.with_name(staging_name(path.name))
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        try:
            flush_directory(path.parent)
        except OSError:  # the change is in place, and a power cut might take it back
            if before is None:
                path.unlink()
            else:
                new.write_bytes(before)
                new.replace(path)
            raise
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def staging_name(name: str) -> str:
    """What `replace_text` calls a file before it is whole; one may be left by a process that died."""
    return f".{name}.new"


def flush_directory(directory: Path) -> None:
    """Wait until the names in `directory` are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Be the only one, thread or process of this machine, inside the lock file `path`, which is made if need be.

    Raises CatalogError when somebody else holds it for a minute, or the file cannot be locked.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("ab"))
            give_up = time.monotonic() + _LOCK_SECONDS
            while not _try_lock(file.fileno()):
                if time.monotonic() > give_up:
                    raise CatalogError(f"{path}: locked by another process for {_LOCK_SECONDS:.0f} s; try again later")
                time.sleep(_RETRY_SECONDS)
        except OSError as error:
            raise CatalogError(f"{path}: cannot be locked: {error.strerror}; check the permissions") from error
        yield  # closing the file unlocks it


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """An OSError becomes a CatalogError that names the file, or else `path`."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise CatalogError(f"{where}: {error.strerror}; check the disk and the permissions") from error


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
