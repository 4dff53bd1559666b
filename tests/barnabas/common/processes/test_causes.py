"""The cause of an exception is found however it was raised."""

from __future__ import annotations

import pytest

from barnabas.client.connection import NodeConnection
from barnabas.client.errors import NodeConnectionError
from barnabas.common.processes.causes import cause_of


def raised(cause: BaseException | None, *, is_named: bool) -> ValueError:
    try:
        try:
            raise KeyError
        except KeyError:
            if is_named:
                raise ValueError from cause
            raise ValueError  # noqa: B904
    except ValueError as error:
        return error


def test_the_named_cause_counts_before_the_exception_that_was_handled() -> None:
    cause = OSError()
    assert cause_of(raised(cause, is_named=True)) is cause
    assert isinstance(cause_of(raised(None, is_named=False)), KeyError)


def test_an_exception_from_none_has_no_cause() -> None:
    assert cause_of(raised(None, is_named=True)) is None
    assert cause_of(ValueError()) is None


def test_a_compiled_module_names_its_cause() -> None:
    with pytest.raises(NodeConnectionError) as caught:
        NodeConnection("127.0.0.1", 1, timeout_ms=1000, client_id="test").connect()
    assert isinstance(cause_of(caught.value), ConnectionRefusedError)
