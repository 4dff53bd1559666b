"""One module per API key, `kNN_name.py`, holding its request, its response and their structures.

Nothing is imported before it is asked for: a process pays only for the APIs it serves or calls.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.schema import Request, Response


def module_name(api_key: int) -> str:
    """Return the full name of an API's module; raises KeyError for an unknown key."""
    if api_key not in ROWS:
        raise KeyError(f"no API has the key {api_key}")
    return f"barnabas.protocol.messages.k{api_key:02d}_{ApiKey(api_key).name.lower()}"


@cache
def request_class(api_key: int) -> type[Request]:
    """Return the class of an API's requests, imported on first use; raises KeyError for an unknown key."""
    found: type[Request] = getattr(_module(api_key), f"{ROWS[api_key].name}Request")
    return found


@cache
def response_class(api_key: int) -> type[Response]:
    """Return the class of an API's responses, imported on first use; raises KeyError for an unknown key."""
    found: type[Response] = getattr(_module(api_key), f"{ROWS[api_key].name}Response")
    return found


def _module(api_key: int) -> ModuleType:
    return import_module(module_name(api_key))
