"""Bearer tokens: how one is made, and what of it the setting `tokens` keeps. Standard library only."""

import hashlib
import secrets
from typing import NamedTuple


class NewToken(NamedTuple):
    """token: for the caller, shown once. entry: for the setting, worth nothing to a thief."""

    token: str
    entry: str


class TokenEntry(NamedTuple):
    """One entry of the setting. rights: of recall and admin. digest: 64 hexadecimal digits."""

    name: str
    rights: frozenset[str]
    digest: str


def make_token(name: str, rights: str) -> NewToken:
    """A fresh token of 256 random bits for the caller `name`; rights: recall, admin or recall+admin."""
    token = secrets.token_urlsafe(32)
    return NewToken(token, f"{name}:{rights}:{digest_of(token)}")


def digest_of(token: str) -> str:
    """SHA-256 of `token`, in hexadecimal digits. Tokens are random, so neither salt nor stretching adds to it."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_entry(entry: str) -> TokenEntry:
    """The parts of an entry that the settings have checked."""
    name, rights, digest = entry.split(":")
    return TokenEntry(name, frozenset(rights.split("+")), digest)
