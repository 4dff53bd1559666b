"""Callbacks of an operator's own: Python functions in place of Kafka's Java classes.

`sasl.server.callback.handler.class` and `sasl.login.callback.handler.class` name `module:function`. What a function
takes and returns is said where it is used (server_settings.py, client_settings.py). It is called by network threads, so
it must be quick.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from barnabas.config.errors import ConfigError


def load_callback(key: str, entry_point: str, *, is_class: bool = False) -> Callable[..., Any]:
    """Return the function or class that a key names; raises ConfigError if it cannot be imported."""
    kind, form = ("class", "module:Class") if is_class else ("function", "module:function")
    module, separator, name = entry_point.partition(":")
    if not separator or not module or not name:
        raise ConfigError(
            f"Invalid value {entry_point} for configuration {key}: Java classes cannot be loaded here; name a Python "
            f"{kind} as {form}"
        )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # also what the module itself raises
        raise ConfigError(f"{key}={entry_point} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigError(f"{key}={entry_point} is not a {kind}")
    return found  # type: ignore[no-any-return]
