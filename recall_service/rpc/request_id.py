"""Which id a call goes by."""

import os
from collections.abc import Iterable

METADATA_KEY = "x-request-id"
MAX_REQUEST_ID_BYTES = 128


def choose_request_id(*candidates: str) -> str:
    """The first candidate of 1 to 128 bytes, else a new id of 32 hexadecimal digits.

    Over-long candidates are passed over, so that an id is always fit to be sent back: validation refuses one in the
    request's field, and one in the metadata was likely added by a proxy and is no fault of the caller.
    """
    for candidate in candidates:
        if 0 < len(candidate.encode()) <= MAX_REQUEST_ID_BYTES:
            return candidate
    return random_id()


def random_id() -> str:
    """32 hexadecimal digits that nobody can guess: 128 bits from the operating system."""
    return os.urandom(16).hex()


def metadata_request_id(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """What the caller's metadata says under `x-request-id`; empty when it says nothing."""
    for key, value in metadata:
        if key == METADATA_KEY:
            return str(value)
    return ""
