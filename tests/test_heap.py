"""What the garbage collector looks at, and when."""

import gc
import weakref

from recall_service.heap import settled_heap


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_is_alive_is_out_of_sight_until_the_end() -> None:
    old = Node()
    with settled_heap():
        assert gc.get_freeze_count() > 0
        assert not any(seen is old for seen in gc.get_objects())
    assert gc.get_freeze_count() == 0
    assert any(seen is old for seen in gc.get_objects())


def test_garbage_of_before_is_gone_and_that_of_later_goes() -> None:
    before = weakref.ref(Node())
    assert before() is not None
    with settled_heap():
        assert before() is None
        later = weakref.ref(Node())
        gc.collect()
        assert later() is None


def test_an_error_inside_gives_the_heap_back() -> None:
    try:
        with settled_heap():
            raise ValueError
    except ValueError:
        assert gc.get_freeze_count() == 0
