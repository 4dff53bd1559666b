"""Answers that are known already: what was asked before, of a state that has not changed since.

Whoever replaces a state whole (`MetadataSnapshot`) keeps the answers given from it beside it, encoded, so that they go
with it. A client that polls for metadata costs a look into a dict then.

Threads: any.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final, NamedTuple

from barnabas.broker.error_codes import error_codes_of
from barnabas.protocol.schema import Message

BYTES_MAX: Final = 4 * 1024 * 1024
KEY_BYTES_MAX: Final = 1024  # of the bytes in a key


class KnownAnswer(NamedTuple):
    """A message, its encoding in one version, and its error codes."""

    message: Message
    encoded: bytes
    error_codes: list[int]


class KnownAnswers:
    """The answers given from one state, by all that they depend on; bounded in bytes."""

    def __init__(self) -> None:
        self._known: dict[Hashable, KnownAnswer] = {}  # added to under _lock, read by anyone
        self._lock = threading.Lock()
        self._bytes = 0  # guarded by: _lock

    def get(self, key: Hashable) -> KnownAnswer | None:
        """Return the answer that was kept under `key`, if one was."""
        return self._known.get(key)

    def keep(self, key: Hashable, message: Message, version: int) -> KnownAnswer:
        """Encode an answer, and keep it while there is room; it must not change any more."""
        known = KnownAnswer(message, message.encode(version), error_codes_of(message))
        size = len(known.encoded) + KEY_BYTES_MAX
        with self._lock:
            if key not in self._known and self._bytes + size <= BYTES_MAX:
                self._bytes += size
                self._known[key] = known
        return known
