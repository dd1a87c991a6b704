"""Rows in the stable order of long keys: no comparison leaves the cache, and every core works.

numpy sorts plain words several times faster than it argsorts them, and faster still when they fit the cache. So the
place of a row is made a part of the word that is sorted, twice:

    1. chunks of rows, as they come: the top bits of each key and the row's place in the chunk are one word of 32 bits.
       Sorted, a chunk lies in buckets; the same buckets of all chunks, one after another, are one run of the result.
    2. each run: as many bits of the keys as fit a word beside the row's place in the run, lowest bits first. Keys of
       39 bits take one round, and longer ones, of any number of words, a few.

This module knows no SIDs and no ids.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from item_catalog.threads import in_threads, slices
from item_catalog.trie import offset_dtype

_WORD_BITS = 64
_CHUNK_BITS = 18
_MAX_BUCKET_BITS = 8
_RUN_BITS = 18  # rows of a run that is neither too large for the cache nor a waste of calls

_Result = TypeVar("_Result")


class KeyColumn(NamedTuple):
    """The keys of `num_rows` rows, read a slice at a time.

    read: rows -> uint64 [rows, words]; the first word is the most significant.
    top_bits: bits that the first word has.
    splittable_bits: at how many of these, the topmost, the order may be cut into runs.
    """

    num_rows: int
    num_words: int
    top_bits: int
    splittable_bits: int
    read: Callable[[slice], NDArray[np.uint64]]


class SortedRun(NamedTuple):
    """Neighbours in the order: all rows whose keys begin alike.

    first: place of the first of them.
    rows: int32 (int64 from 2**31 rows) [n]; their keys: uint64 [n, words], ascending, on equal keys rows ascend.
    """

    first: int
    rows: NDArray[np.signedinteger]
    keys: NDArray[np.uint64]


def map_sorted_runs(column: KeyColumn, function: Callable[[SortedRun], _Result]) -> list[_Result]:
    """What `function` makes of each run, in the order of the runs. It is called on several threads."""
    wanted_bits = max(0, (column.num_rows >> _RUN_BITS).bit_length())
    bucket_bits = min(_MAX_BUCKET_BITS, column.splittable_bits, wanted_bits)
    chunks = slices(column.num_rows, 1 << _CHUNK_BITS)
    rows = np.empty(column.num_rows, offset_dtype(column.num_rows))
    keys = np.empty((column.num_words, column.num_rows), np.uint64)
    edges = np.arange((1 << bucket_bits) + 1, dtype=np.uint32) << np.uint32(_CHUNK_BITS)

    def part(chunk: slice) -> NDArray[np.int64]:
        """Lay a chunk in buckets, and say where each begins and ends."""
        chunk_keys = column.read(chunk)
        buckets = (chunk_keys[:, 0] >> np.uint64(column.top_bits - bucket_bits)).astype(np.uint32)
        tagged = buckets << np.uint32(_CHUNK_BITS) | np.arange(len(buckets), dtype=np.uint32)
        tagged.sort()
        places = tagged & np.uint32((1 << _CHUNK_BITS) - 1)
        rows[chunk] = places + np.int64(chunk.start)
        for word in range(column.num_words):
            keys[word, chunk] = chunk_keys[:, word].take(places)
        bounds: NDArray[np.int64] = chunk.start + np.searchsorted(tagged, edges)
        return bounds

    bounds = np.array(in_threads(part, chunks))  # [chunks, buckets + 1]
    firsts = np.append(0, np.diff(bounds).sum(axis=0).cumsum())

    def sort(bucket: int) -> _Result:
        pieces = [slice(*piece) for piece in bounds[:, bucket : bucket + 2].tolist()]
        run_keys = np.concatenate([keys[:, piece] for piece in pieces], axis=1).T
        order = stable_order(run_keys)
        run_rows = np.concatenate([rows[piece] for piece in pieces])
        return function(SortedRun(int(firsts[bucket]), run_rows.take(order), run_keys.take(order, axis=0)))

    return in_threads(sort, np.flatnonzero(np.diff(firsts)).tolist())


def stable_order(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Keys uint64 [n, words] -> the rows int64 [n] in ascending order of their keys, equal ones as they come."""
    place_bits = (len(keys) - 1).bit_length()
    places = np.arange(len(keys), dtype=np.uint64)
    order = places.view(np.int64)
    is_ordered = False  # by the digits of the rounds before
    for word in keys.T[::-1]:
        lowest = word.min()
        for shift in range(0, int(word.max() - lowest).bit_length(), _WORD_BITS - place_bits):
            tagged = (word - lowest) >> np.uint64(shift)
            if is_ordered:
                tagged = tagged.take(order)
            tagged <<= np.uint64(place_bits)  # higher bits fall off: a later round sorts them
            tagged |= places
            tagged.sort()
            tagged &= np.uint64((1 << place_bits) - 1)
            step = tagged.view(np.int64)
            order = order.take(step) if is_ordered else step
            is_ordered = True
    return order
