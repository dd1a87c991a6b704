"""Which recalls are logged: decided by the request id alone, so that replicas and retries of a call agree."""

import xxhash

_NUM_HASHES = 2.0**64


def is_sampled(request_id: str, share: float) -> bool:
    """Whether a recall of this id is among the `share` (0 to 1) that is logged; a larger share holds every smaller."""
    return xxhash.xxh3_64_intdigest(request_id.encode()) < share * _NUM_HASHES
