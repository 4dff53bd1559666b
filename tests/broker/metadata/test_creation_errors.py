"""CreationErrors: they are kept for a while, and not more than so many."""

from __future__ import annotations

import pytest

from barnabas.broker.metadata import creation_errors
from barnabas.broker.metadata.creation_errors import CreationErrors
from barnabas.common.clock import FakeClock


def test_an_error_is_kept_until_it_expires() -> None:
    clock = FakeClock()
    errors = CreationErrors(clock)
    errors.put("a", "too few brokers", 100)
    clock.advance_ms(99)
    assert errors.of(["a", "b"]) == {"a": "too few brokers"}
    clock.advance_ms(1)
    assert errors.of(["a", "b"]) == {}


def test_a_later_error_replaces_the_first() -> None:
    clock = FakeClock()
    errors = CreationErrors(clock)
    errors.put("a", "first", 100)
    clock.advance_ms(50)
    errors.put("a", "second", 100)
    clock.advance_ms(50)
    assert errors.of(["a"]) == {"a": "second"}


def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation_errors, "ERRORS_MAX", 2)
    errors = CreationErrors(FakeClock())
    for name in ("a", "b", "a", "c"):
        errors.put(name, name, 100)
    assert errors.of(["a", "b", "c"]) == {"a": "a", "c": "c"}
