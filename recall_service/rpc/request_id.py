"""Which id a call goes by."""

import secrets
from typing import Any

import grpc

METADATA_KEY = "x-request-id"
MAX_REQUEST_ID_BYTES = 128


def request_id_of(field: str, context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """The id in the request's `field`, else the one in the metadata, else a new one of 32 hexadecimal digits.

    Over-long ids are passed over, so that an id is always fit to be sent back: validation refuses one in the field,
    and one in the metadata was likely added by a proxy and is no fault of the caller.
    """
    from_metadata = (value for key, value in context.invocation_metadata() or () if key == METADATA_KEY)
    for candidate in (field, *from_metadata):
        if isinstance(candidate, str) and 0 < len(candidate.encode()) <= MAX_REQUEST_ID_BYTES:
            return candidate
    return secrets.token_hex(16)
