"""Look-ahead in threads: the order of the items, how far ahead, errors, and the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from caption.core.errors import ImageError
from caption.core.runtime.prefetch import prefetch


@pytest.mark.parametrize("count", [0, 1, 20])
@pytest.mark.parametrize("ahead", [0, 1, 7])
def test_results_come_in_the_order_of_the_items(count: int, ahead: int):
    def slow_at_first(number: int) -> int:
        time.sleep(0.002 if number % 3 == 0 else 0)
        return number * number

    found = list(prefetch(slow_at_first, range(count), ahead, workers=4))
    assert found == [(number, number * number) for number in range(count)]


@pytest.mark.parametrize("ahead", [0, 3])
def test_items_are_taken_only_so_far_ahead_and_worked_on_meanwhile(ahead: int):
    taken, begun = 0, threading.Event()

    def endless() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    stream = prefetch(lambda item: item == 2 and begun.set(), endless(), ahead)
    for given in range(1, 20):
        next(stream)
        assert taken == given + ahead
        assert given > 1 or not ahead or begun.wait(10)
    stream.close()


def test_an_image_error_is_a_result_and_any_other_error_is_raised():
    def work(item: int) -> int:
        if item == 1:
            raise ImageError("bad photo")
        return 10 // item

    stream = prefetch(work, [1, 2, 0, 5], ahead=2)
    item, error = next(stream)
    assert isinstance(error, ImageError)
    assert (item, str(error), next(stream)) == (1, "bad photo", (2, 5))
    with pytest.raises(ZeroDivisionError):
        next(stream)


def test_closing_leaves_no_thread_and_begins_nothing_more():
    before, begun = threading.active_count(), []

    def work(item: int) -> None:
        begun.append(item)
        time.sleep(0.01)

    stream = prefetch(work, range(1000), ahead=500, workers=2)
    next(stream)
    stream.close()
    assert threading.active_count() == before
    assert len(begun) < 20
