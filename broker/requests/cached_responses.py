"""Cached responses: encoded answers to queries of a state that has not changed since.

The owner of a state that is replaced whole (`MetadataSnapshot`) keeps the responses made from it beside it, so both are
dropped together. A client that polls for metadata then costs one dict lookup.

Threads: any.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final, NamedTuple

from barnabas.broker.requests.error_codes import error_codes_of
from barnabas.protocol.schema import Message

BYTES_MAX: Final = 4 * 1024 * 1024
KEY_BYTES_MAX: Final = 1024  # the largest key, in bytes


class CachedResponse(NamedTuple):
    """A message, its encoding in one version, and its error codes."""

    message: Message
    encoded: bytes
    error_codes: list[int]


class CachedResponses:
    """The responses made from one state, by all that they depend on; at most BYTES_MAX bytes."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, CachedResponse] = {}  # added to under _lock; any thread reads
        self._lock = threading.Lock()
        self._bytes = 0  # guarded by: _lock

    def get(self, key: Hashable) -> CachedResponse | None:
        """Return the response cached under `key`, if any."""
        return self._by_key.get(key)

    def put(self, key: Hashable, message: Message, version: int) -> CachedResponse:
        """Encode a message, which must not change afterwards, and cache it if there is space; return the entry."""
        entry = CachedResponse(message, message.encode(version), error_codes_of(message))
        size = len(entry.encoded) + KEY_BYTES_MAX
        with self._lock:
            if key not in self._by_key and self._bytes + size <= BYTES_MAX:
                self._bytes += size
                self._by_key[key] = entry
        return entry
