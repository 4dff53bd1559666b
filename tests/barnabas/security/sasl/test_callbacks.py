"""Callbacks that settings name."""

from __future__ import annotations

import os.path

import pytest

from barnabas.config.errors import ConfigError
from barnabas.security.sasl.callbacks import load_callback


def test_a_function_is_imported() -> None:
    assert load_callback("key", "os.path:join") is os.path.join
    assert load_callback("key", "os:path.join") is os.path.join


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        ("org.example.Handler", "Java classes cannot be loaded here"),
        (":join", "name a Python function as module:function"),
        ("no_such_module:f", "key=no_such_module:f cannot be imported: No module named"),
        ("os.path:no_such_function", "cannot be imported"),
        ("os:curdir", "key=os:curdir is not a function"),
    ],
)
def test_others_are_refused_in_one_line(entry_point: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_callback("key", entry_point)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_is_named_as_one() -> None:
    with pytest.raises(ConfigError, match=r"name a Python class as module:Class$"):
        load_callback("key", "a.B", is_class=True)
    with pytest.raises(ConfigError, match=r"key=os:curdir is not a class$"):
        load_callback("key", "os:curdir", is_class=True)
