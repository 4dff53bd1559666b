"""ClientInstance: what a broker knows of one client that gets subscriptions and pushes metrics (KIP-714).

Rules
1. A client may ask for its subscriptions once per interval, and push once per interval. The first push after it asked
   is accepted at any time: a client waits between half of the interval and one and a half.
2. A client that was answered UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE may ask at once.
3. A push that is the client's last is accepted at any time. No push is accepted after it.

Threads: guarded by the manager's lock. Pure: the caller gives the time.
Source: ClientMetricsInstance, ClientMetricsManager (Kafka 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.telemetry.subscriptions import Attributes, Wanted

EXPIRY_MIN_MS: Final = 60_000
_INTERVALS_KEPT: Final = 3
#: A principal and an address. The pages show the ids of instances, so an id alone proves nothing.
Owner = tuple[str, str]
_MAY_ASK_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class ClientInstance:
    """See the module."""

    __slots__ = (
        "attributes",
        "connection_id",
        "expires_ms",
        "id",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "owner",
        "subscription_id",
        "version",
        "wanted",
    )

    def __init__(
        self, instance_id: bytes, attributes: Attributes, wanted: Wanted, version: int, owner: Owner = ("", "")
    ) -> None:
        # Fixed.
        self.id = instance_id
        self.attributes = attributes
        self.wanted = wanted
        self.version = version  # of the subscriptions
        self.owner = owner
        self.subscription_id = wanted.subscription_id(instance_id)
        # guarded by: the manager's lock
        self.connection_id = ""  # of its last request
        self.expires_ms = 0
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def touch(self, connection_id: str, now_ms: int) -> None:
        """Note a request: the instance is kept for three intervals, and at least a minute."""
        self.connection_id = connection_id
        self.expires_ms = now_ms + max(EXPIRY_MIN_MS, self.wanted.interval_ms * _INTERVALS_KEPT)

    def may_get(self, now_ms: int) -> bool:
        """Return whether the client may ask for its subscriptions now, and note that it did (rules 1 and 2)."""
        if self._is_due(now_ms, self.last_get_ms) and self._is_due(now_ms, self.last_push_ms):
            self.last_get_ms = now_ms
            return True
        return self.last_error in _MAY_ASK_AGAIN

    def may_push(self, now_ms: int) -> bool:
        """Return whether the client may push now, and note that it did (rule 1)."""
        got_ms, pushed_ms = self.last_get_ms, self.last_push_ms
        is_first = got_ms is not None and (pushed_ms is None or got_ms > pushed_ms)
        if is_first or self._is_due(now_ms, pushed_ms):
            self.last_push_ms = now_ms
            return True
        return False

    def _is_due(self, now_ms: int, last_ms: int | None) -> bool:
        return last_ms is None or now_ms - last_ms >= self.wanted.interval_ms
