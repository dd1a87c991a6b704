"""Who calls, and may they? By bearer token, where tokens are set; the name of a client certificate is a name alone.

Tokens come as metadata `authorization: Bearer <token>`. Known here is only the digest of each; neither is ever logged.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import grpc

from recall_service.errors import PermissionDenied, Unauthenticated
from recall_service.tokens import digest_of, read_entry

METADATA_KEY = "authorization"
_SCHEME = "bearer"
_REFUSAL = "no token that is known here; send the metadata authorization: Bearer <token>"


class Right(StrEnum):
    """What a caller may be allowed to do."""

    RECALL = "recall"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """name: of the token, else the common name of the client's certificate, else empty: anybody."""

    name: str
    rights: frozenset[str]


_ANYBODY = Caller("", frozenset(Right))


class Authentication:
    """Tells callers apart.

    tokens: entries name:rights:digest, as the settings have checked them; none: whoever connects has every right.
    by_certificate: whether connections carry a client certificate that was verified.
    """

    def __init__(self, tokens: Sequence[str] = (), *, by_certificate: bool = False) -> None:
        self._entries = [read_entry(token) for token in tokens]
        self._by_certificate = by_certificate

    def admit(self, context: grpc.aio.ServicerContext[Any, Any], right: Right) -> Caller:
        """The caller of a call that needs `right`. Raises Unauthenticated or PermissionDenied."""
        if not self._entries:
            return Caller(_common_name(context), _ANYBODY.rights) if self._by_certificate else _ANYBODY
        caller = self._holder_of(_token(context))
        if right not in caller.rights:
            raise PermissionDenied(f"{caller.name} has no right to {right}; ask the operators for a token that has")
        return caller

    def _holder_of(self, token: str | None) -> Caller:
        """Compares with every entry, whichever fits, so that the time it takes tells nothing."""
        holder = None
        if token is not None:
            digest = digest_of(token)
            for entry in self._entries:
                if hmac.compare_digest(digest, entry.digest):
                    holder = Caller(entry.name, entry.rights)
        if holder is None:
            raise Unauthenticated(_REFUSAL)
        return holder


def _token(context: grpc.aio.ServicerContext[Any, Any]) -> str | None:
    """What one `authorization` of scheme Bearer holds; None for anything else, two of them included."""
    values = [str(value) for key, value in context.invocation_metadata() or () if key == METADATA_KEY]
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(" ")
    return token.strip() if scheme.lower() == _SCHEME else None


def _common_name(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    names = context.auth_context().get("x509_common_name", ())
    return next(iter(names), b"").decode(errors="replace")
