"""Owners of state."""

from __future__ import annotations

import threading

from barnabas.common.ownership import ThreadOwner


def test_only_the_claiming_thread_is_the_owner() -> None:
    owner = ThreadOwner()
    assert owner.is_current(), "before start anyone may build"
    thread = threading.Thread(target=owner.claim)
    thread.start()
    ident = thread.ident
    thread.join()
    # Why: a new thread may be given the number of the one that ended, so ask from this one only.
    assert owner.is_current() is (threading.get_ident() == ident)
    owner.release()
    assert owner.is_current()
