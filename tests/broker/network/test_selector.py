"""The edge-triggered selector."""

from __future__ import annotations

import selectors
import socket
import threading

import pytest

from barnabas.broker.network.selector import HUNG_UP, READABLE, WRITABLE, EdgeSelector


def test_changes_are_reported_once() -> None:
    near, far = socket.socketpair()
    selector = EdgeSelector()
    key = selector.register(near, selectors.EVENT_READ, "data")
    with pytest.raises(KeyError):
        selector.register(near, selectors.EVENT_READ)
    assert selector.get_map()[near.fileno()] is key
    assert selector.select(0) == [(key, selectors.EVENT_WRITE)], "a registration reports the present state"
    assert selector.poll(0) == []
    far.send(b"x")
    ((fd, events),) = selector.poll(1)
    assert fd == near.fileno()
    assert events & READABLE
    assert events & WRITABLE
    assert selector.poll(0) == [], "the byte is still there, but that is no change"
    far.close()
    ((_, events),) = selector.poll(1)
    assert events & HUNG_UP
    selector.unregister(near)
    selector.close()
    near.close()


def test_it_can_be_woken_repeatedly() -> None:
    selector = EdgeSelector()
    for _ in range(3):
        thread = threading.Thread(target=selector.wake)
        thread.start()
        assert len(selector.poll(10)) == 1
        thread.join()
        assert selector.select(0) == []
    selector.wake()
    selector.wake()
    assert len(selector.poll(0)) == 1, "wake-ups collapse"
    selector.close()


def test_a_late_wake_up_is_harmless() -> None:
    selector = EdgeSelector()
    selector.close()
    near, far = socket.socketpair()  # reuses the closed descriptors
    selector.wake()
    selector.close()
    far.setblocking(False)
    with pytest.raises(BlockingIOError):
        far.recv(1)
    near.close()
    far.close()
