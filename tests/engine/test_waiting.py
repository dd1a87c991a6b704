"""Who is next in the queue, held to the rule by a list that is sorted anew each time; and what it costs."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.request import BeamRequest, Priority
from recall_service.engine.waiting import Waiting, WaitingQueue

AGEING_SECONDS = 1.0


def waiting(
    request_id: int, submitted: float, priority: Priority = Priority.NORMAL, deadline: float | None = None
) -> Waiting:
    request = BeamRequest(prompt=np.ones(1, np.int64), beam_width=1, priority=priority, deadline=deadline)
    return Waiting(request_id, request, submitted)


def drained(queue: WaitingQueue) -> list[int]:
    """Ids in the order in which they go."""
    order = []
    while (head := queue.head) is not None:
        order.append(head.request_id)
        assert queue.remove(head.request_id) is head
    return order


def in_order(entries: list[Waiting]) -> list[int]:
    """The rule, as it is stated."""
    entries = sorted(entries, key=lambda w: (w.submitted + w.request.priority * AGEING_SECONDS, w.request_id))
    return [entry.request_id for entry in entries]


@settings(derandomize=True, max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_the_order_is_that_of_arrival_and_priority(seed: int) -> None:
    """Whatever leaves in between: cancelled, expired, or because its turn has come."""
    rng, queue, now = np.random.default_rng(seed), WaitingQueue(AGEING_SECONDS), 0.0
    kept: dict[int, Waiting] = {}
    for request_id in range(40):
        now += float(rng.exponential(0.3)) * (rng.random() < 0.7)  # some come at once
        deadline = now + float(rng.exponential(3.0)) if rng.random() < 0.5 else None
        kept[request_id] = waiting(request_id, now, Priority(int(rng.integers(3))), deadline)
        queue.append(kept[request_id])
        if rng.random() < 0.2:
            victim = int(rng.integers(request_id + 1))
            assert queue.remove(victim) is kept.pop(victim, None)
        if rng.random() < 0.2:
            gone = {w.request_id for w in kept.values() if w.request.deadline is not None and w.request.deadline <= now}
            assert {expired.request_id for expired in queue.remove_expired(now)} == gone
            kept = {request_id: entry for request_id, entry in kept.items() if request_id not in gone}
        if rng.random() < 0.2 and kept:
            first = in_order(list(kept.values()))[0]
            assert queue.head is kept.pop(first)
            queue.remove(first)
        assert len(queue) == len(kept)
        oldest = min((entry.submitted for entry in kept.values()), default=now)
        assert queue.age_seconds(now) == now - oldest
    assert drained(queue) == in_order(list(kept.values()))
    assert queue.age_seconds(now) == 0


def test_one_that_has_waited_the_ageing_time_longer_is_as_good_as_one_priority_more() -> None:
    queue = WaitingQueue(AGEING_SECONDS)
    queue.append(waiting(1, 10.0, Priority.LOW))
    queue.append(waiting(2, 11.9, Priority.HIGH))
    queue.append(waiting(3, 11.1, Priority.NORMAL))
    queue.append(waiting(4, 12.1, Priority.HIGH))
    assert drained(queue) == [2, 1, 3, 4]


def test_a_stream_of_the_highest_priority_starves_nobody() -> None:
    """One goes, one of the highest priority comes, ten a second: the lowest waits no longer than two ageing times."""
    queue, now = WaitingQueue(AGEING_SECONDS), 0.0
    queue.append(waiting(0, now, Priority.LOW))
    for request_id in range(1, 100):
        now += 0.1
        queue.append(waiting(request_id, now, Priority.HIGH))
        head = queue.head
        assert head is not None
        if head.request_id == 0:
            break
        queue.remove(head.request_id)
    assert now == pytest.approx(2 * AGEING_SECONDS, abs=0.15)


def test_taking_out_costs_the_same_however_many_wait() -> None:
    """10,000 leave, in any order, in a moment; were each to look at all others, it would be 10 s."""
    queue, rng = WaitingQueue(AGEING_SECONDS), np.random.default_rng(0)
    for request_id in range(10_000):
        queue.append(waiting(request_id, float(request_id), Priority(request_id % 3), deadline=1e9))
    started = time.monotonic()
    for request_id in rng.permutation(10_000).tolist():
        assert queue.remove_expired(0.0) == []
        assert queue.remove(request_id) is not None
    assert time.monotonic() - started < 1.0
    assert len(queue) == 0


def test_deadlines_of_those_gone_do_not_pile_up() -> None:
    """One waits for long, and many with an hour to go come and leave behind it."""
    queue = WaitingQueue(AGEING_SECONDS)
    queue.append(waiting(0, 0.0))
    for request_id in range(1, 2_000):
        queue.append(waiting(request_id, float(request_id), deadline=5_000.0 + request_id))
        queue.remove(request_id)
    assert len(queue._deadlines) < 100
    assert queue.age_seconds(2_000.0) == 2_000.0


def test_everybody_can_be_sent_away() -> None:
    queue = WaitingQueue(AGEING_SECONDS)
    for request_id, priority in enumerate(Priority):
        queue.append(waiting(request_id, 1.0, priority, deadline=2.0))
    assert sorted(entry.request_id for entry in queue.remove_all()) == [0, 1, 2]
    assert (len(queue), queue.head, queue.remove_expired(3.0), queue.age_seconds(3.0)) == (0, None, [], 0.0)
