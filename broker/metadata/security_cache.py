"""SecurityCache: the broker's copy of the security metadata: ACLs, SCRAM credentials, delegation tokens, client quotas.

Rules
1. `image` is immutable and replaced whole. A request reads it once, without a lock.
2. A FULL push replaces everything; another one changes what it names, and is nothing before the first FULL one.
3. Before anything has arrived, `is_loaded` is false. Then an absent ACL or user means nothing: refuse, do not allow.
   A broker that authenticates or authorizes clients admits them after the first push (SocketServer.admit_clients). The
   listener that the controller uses does not wait, or not for long if it is the only one.
4. Listeners are called after the image is replaced, in order, one at a time, each with the new image and the kinds
   that changed. So a listener that keeps an index of its own (the authorizer) has it before the push is acknowledged.
5. Until then, the credentials in the metadata copy on disk count. So nodes that log in by SCRAM can talk without a
   controller, and `barnabas controller recover` can log in to restarted brokers.

The pushes bring the metadata. So does the response to the broker's registration, since the controller may have to
authenticate itself before its first push is read, by a credential that only it has yet.

Threads: any thread reads; the handler that runs UpdateMetadata and the lifecycle thread write.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.protocol.metadata_records import MetadataRecord, UserScramCredentialRecord
from barnabas.security.image import Kind, SecurityEditor, SecurityImage

log = logging.getLogger("barnabas.security")

NOTHING: Final = -1

Listener = Callable[[SecurityImage, frozenset[Kind]], None]


class SecurityCache:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # serializes writers and the calls of listeners
        self.image = SecurityImage()  # replaced whole under _lock
        self._offset = NOTHING  # guarded by: _lock; metadata offset of the newest change
        self._untold: frozenset[Kind] = frozenset(Kind)  # guarded by: _lock; changed, and not all listeners know
        self._listeners: list[Listener] = []  # fixed before start

    def on_change(self, listener: Listener) -> None:
        """Call `listener` after each change, on the thread that brought it. It must not wait. Before start only."""
        self._listeners.append(listener)

    @property
    def is_loaded(self) -> bool:
        """Whether the metadata has arrived once."""
        return self._offset != NOTHING

    def remember(self, records: Iterable[MetadataRecord]) -> None:
        """Take SCRAM credentials of an earlier process (rule 5); without effect once the metadata has arrived."""
        with self._lock:
            if not self.is_loaded:
                editor = SecurityEditor(SecurityImage())
                for record in records:
                    if isinstance(record, UserScramCredentialRecord):
                        editor.apply(record)
                self.image = editor.image()

    def apply(self, records: Iterable[MetadataRecord], offset: int, *, is_full: bool) -> None:
        """Take the records of a push; with `is_full` they are everything, else what changed.

        `offset` is that of the metadata log, up to which the image is complete afterwards. Older records are ignored,
        since the response to a registration may come after a push, and the other way round.
        """
        with self._lock:
            if offset < self._offset or not (is_full or self.is_loaded):
                return
            before = self.image
            editor = SecurityEditor(SecurityImage() if is_full else before)
            for record in records:
                editor.apply(record)
            self.image = after = editor.image()
            self._offset = offset
            changed = self._untold = self._untold | _changed(before, after)
            if changed:
                log.debug("%s changed", ", ".join(sorted(kind.value for kind in changed)))
                for listener in self._listeners:
                    listener(after, changed)
                self._untold = frozenset()


def _changed(before: SecurityImage, after: SecurityImage) -> frozenset[Kind]:
    """Return the kinds whose values differ."""
    pairs = {
        Kind.ACLS: (before.acls, after.acls),
        Kind.CREDENTIALS: (before.credentials, after.credentials),
        Kind.TOKENS: (before.tokens, after.tokens),
        Kind.QUOTAS: (before.quotas, after.quotas),
    }
    return frozenset(kind for kind, (old, new) in pairs.items() if old is not new and old != new)
