"""What becomes of the user id before anything is written."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Literal

HIDING_BYTES = 16  # of a hash: two of 2**40 users share one with a chance of 2**-49

UserIds = Literal["keep", "drop", "hash"]


def user_id_rule(user_ids: UserIds, hash_key: bytes) -> Callable[[str], str]:
    """Keep an id as it is, drop it, or put 32 hexadecimal digits in its place: its BLAKE2b under `hash_key`.

    Equal ids have equal hashes under one key, and without the key nobody can try ids out. No id stays no id.
    hash_key: at most 64 bytes, and some where "hash" is asked for; ValueError otherwise.
    """
    if user_ids == "keep":
        return str
    if user_ids == "drop":
        return lambda _: ""
    if not hash_key:
        raise ValueError("user ids are to be hashed, and there is no key; give one, or drop the ids")
    keyed = blake2b(digest_size=HIDING_BYTES, key=hash_key)

    def hashed(user_id: str) -> str:
        if not user_id:
            return ""
        digest = keyed.copy()
        digest.update(user_id.encode())
        return digest.hexdigest()

    return hashed
