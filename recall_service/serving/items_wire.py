"""Items as the bytes in which every response carries them, made once for all callers who get the same answer.

Knows the contract's message of an item, and nothing of calls. Bytes of one message type may be joined: these, behind
those of a response without items, are the response with them.

Built item by item through protobuf: 71 us for 100 items. Building the bytes from whole arrays in numpy takes 50 us,
and 34 us for 10 items where protobuf takes 10: not worth a second writer of protobuf's format.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recall_service.stubs.recall.v1.recall_pb2 import RecallResponse


def encode_items(
    item_ids: Sequence[str],
    scores: NDArray[np.float64],
    sids: NDArray[np.int32],
    step_log_probs: NDArray[np.float32] | None,
    step_ranks: NDArray[np.int32] | None,
) -> bytes:
    """A serialised RecallResponse of items alone. Arrays as in `RecallAnswer`; steps both or neither.

    Arrays become lists once, as a whole: an element taken from an array costs more than the item it goes into.
    """
    response = RecallResponse()
    add = response.items.add
    if step_log_probs is None or step_ranks is None:
        for item_id, score, sid in zip(item_ids, scores.tolist(), sids.tolist(), strict=True):
            add(item_id=item_id, score=score, sid=sid)
    else:
        arrays = (scores, sids, step_log_probs, step_ranks)
        for item_id, score, sid, log_probs, ranks in zip(item_ids, *(a.tolist() for a in arrays), strict=True):
            add(item_id=item_id, score=score, sid=sid, step_log_probs=log_probs, step_ranks=ranks)
    return response.SerializeToString()
