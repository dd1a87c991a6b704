"""Whether texts from files are what they claim to be: Arrow takes any bytes for a string until it is asked."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def are_utf8(texts: pa.Array) -> NDArray[np.bool_]:
    """Arrow strings [n] -> bool [n]; null is."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([text is None or _is_utf8(text) for text in texts.cast(pa.large_binary()).to_pylist()])
    return np.ones(len(texts), bool)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
