"""Raw little-endian .npy files of one known array each: written whole, and mapped without parsing what they say.

The header of a file is not read but compared with the only one it may have, so no byte of it is ever interpreted, let
alone unpickled. Any numpy reads these files. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from item_catalog.errors import CatalogError

HEADER_BYTES = 128  # a multiple of 64, as the format asks; what follows is aligned for every dtype


def write_array(path: Path, array: NDArray[np.generic]) -> None:
    """Write a new file and wait until it is on the disk."""
    with path.open("xb") as file:
        file.write(_header(array.dtype, array.shape))
        file.write(array.data)
        file.flush()
        os.fsync(file.fileno())


def map_array(path: Path, dtype: np.dtype[np.generic], shape: tuple[int, ...], file_bytes: int) -> NDArray[np.generic]:
    """The array in `path`, read-only and paged in as it is used.

    Raises CatalogError when the file is missing, is not `file_bytes` long, or holds another dtype or shape.
    """
    if not path.is_file():
        raise CatalogError(f"{path}: is missing or no file; copy the catalogue again")
    with path.open("rb") as file:
        found_bytes = os.fstat(file.fileno()).st_size
        if found_bytes != file_bytes:
            raise CatalogError(f"{path}: {found_bytes} bytes instead of {file_bytes}; copy the catalogue again")
        if file.read(HEADER_BYTES) != _header(dtype, shape):
            raise CatalogError(
                f"{path}: not the .npy of {dtype.str} {list(shape)} it should be; copy the catalogue again"
            )
        return np.asarray(np.memmap(file, dtype, "r", HEADER_BYTES, shape))


def _header(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> bytes:
    """Magic, format 1.0, length of what follows, and a Python dict in text, filled with spaces to HEADER_BYTES."""
    preamble = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    description = repr({"descr": dtype.str, "fortran_order": False, "shape": shape})
    return preamble + description.encode().ljust(HEADER_BYTES - len(preamble) - 1) + b"\n"
