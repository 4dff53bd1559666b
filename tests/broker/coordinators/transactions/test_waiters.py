"""Requests that wait for a busy transactional id: their order and their deadlines."""

from __future__ import annotations

from barnabas.broker.coordinators.transactions.waiters import Waiter, Waiters


def waiter(id_: str, deadline_ms: int) -> Waiter:
    return Waiter(id_, lambda: None, lambda _error: None, deadline_ms)


def test_each_is_taken_once_in_the_order_of_coming() -> None:
    waiters = Waiters()
    x1, y1, x2 = (waiter(id_, at) for id_, at in (("x", 10), ("y", 20), ("x", 30)))
    for each in (x1, y1, x2):
        waiters.add(each)
    assert waiters.next_deadline_ms() == 10
    assert waiters.take("x") == [x1, x2]
    assert waiters.take("x") == []
    assert (len(waiters), waiters.next_deadline_ms()) == (1, 20)
    assert waiters.take_late(19) == []
    assert waiters.take_late(20) == [y1]
    assert (waiters.take("y"), waiters.next_deadline_ms()) == ([], None)


def test_the_late_ones_leave_the_others_of_their_id() -> None:
    waiters = Waiters()
    x1, x2 = waiter("x", 10), waiter("x", 30)
    waiters.add(x1)
    waiters.add(x2)
    assert waiters.take_late(15) == [x1]
    assert waiters.take_all() == [x2]
    assert len(waiters) == 0
    assert waiters.take("x") == []


def test_one_that_was_tried_in_vain_keeps_its_time() -> None:
    waiters = Waiters()
    early, late = waiter("a", 10), waiter("b", 20)
    waiters.add(early)
    waiters.add(late)
    for taken in waiters.take("a"):
        waiters.add(taken)
    assert waiters.next_deadline_ms() == 10
    assert waiters.take_late(10) == [early]
    assert waiters.next_deadline_ms() == 20
