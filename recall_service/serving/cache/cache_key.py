"""The key of a question: one digest of everything that decides its answer, and of nothing else.

Knows no cache and no wire format. Who asks, from which scene, under which request id or deadline is not part of it.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import pack

from item_catalog.filtering.filters import Filter
from recall_service.engine.request import ScoreSpace, SearchMode
from recall_service.serving.cache.answer_codec import FORMAT_VERSION

# blake2b and not a faster checksum: history ids come from callers, and with a hash that is not collision-resistant one
# caller could craft a question whose answer another caller then gets. It takes some 10 us for 500 ids.
DIGEST_BYTES = 32


def cache_key(
    *,
    bundle: str,
    bundle_version: str,
    catalog_version: str,
    score_space: ScoreSpace,
    beam_width: int,
    num_items: int,
    search_mode: SearchMode,
    include_steps: bool,
    history: Sequence[str] | None = None,
    prompt: Sequence[int] | None = None,
    wanted: Filter | None = None,
    exclude_item_ids: Collection[str] = (),
    exclude_history: bool = False,
) -> bytes:
    """Digest, DIGEST_BYTES long, of a question whose defaults are resolved.

    history: item ids as they were asked, unknown ones included, for the answer counts those.
    prompt: token ids. Exactly one of the two is given; ValueError otherwise.
    wanted: the filter, in any of the forms of its meaning.
    exclude_item_ids: in any order, and any number of times each; unknown ones included, for the answer counts those.
    """
    if (history is None) == (prompt is None):
        raise ValueError("cache_key: give exactly one of history and prompt")
    of_all = _shared(
        (beam_width, num_items, include_steps), bundle, bundle_version, catalog_version, score_space, search_mode
    )
    parts = [of_all, _strings(history) if history is not None else _integers(prompt or ())]
    if wanted is not None or exclude_item_ids or exclude_history:
        parts.append(_narrowing(wanted, exclude_item_ids, exclude_history=exclude_history))
    return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def _narrowing(wanted: Filter | None, exclude_item_ids: Collection[str], *, exclude_history: bool) -> bytes:
    """What is asked for beyond the rest of a question; it has its own beginning and end, and stands last."""
    digest = b"" if wanted is None else wanted.digest()
    return _integers([exclude_history, len(digest)]) + digest + _strings(sorted(set(exclude_item_ids)))


def _strings(values: Sequence[str]) -> bytes:
    """Type, number of values, their lengths in characters, their text: no two different sequences read the same."""
    return b"s" + _integers(list(map(len, values))) + "".join(values).encode()


@lru_cache(maxsize=256)
def _shared(integers: Sequence[int], *strings: str) -> bytes:
    """What most questions of a bundle have in common."""
    return _integers([FORMAT_VERSION, *integers]) + _strings(strings)


def _integers(values: Sequence[int]) -> bytes:
    """Type, number of values, the values."""
    return b"i" + pack(f"<{len(values) + 1}q", len(values), *values)
