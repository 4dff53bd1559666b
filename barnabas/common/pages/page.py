"""A page of a process: the request for it and the answer. Threads: none; values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: The query of an address (what follows its question mark): values by name, the last one where a name comes twice.
Query = Mapping[str, str]


class Page(NamedTuple):
    """The answer to a request."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = ()  # beside Content-Type, Content-Length and Connection
    may_be_gzipped: bool = False


class Request(NamedTuple):
    """An HTTP request. Headers have all their values, in the order in which they came."""

    method: str
    target: str  # path and query
    hosts: list[str]
    origins: list[str]
    accept: str
    accept_encodings: list[str]
    body: bytes
    authorizations: list[str]
    address: str  # of the visitor


class ResourceRequest(NamedTuple):
    """A request to a resource: method, path below the resource's ("" for the resource itself), query, body."""

    method: str
    path: str
    query: Query
    body: bytes


def readiness(state: str, *, is_ready: bool) -> Page:
    """Return the page /readyz of a process that is in `state`."""
    return Page(f"{state.lower()}\n".encode(), status="200 OK" if is_ready else "503 Service Unavailable")
