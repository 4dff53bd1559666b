"""The requests in flight: at most one to each node, a pause after a failure, and which responses still count.

Source: RequestManager (Kafka 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Connection:
    correlation_id: int = -1
    sent_ms: int = 0
    ready_ms: int = 0


class RequestManager:
    """Knows when a node may be sent the next request."""

    def __init__(self, retry_backoff_ms: int, request_timeout_ms: int) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._connections: dict[int, _Connection] = {}
        self._last_id = 0

    def ready_at(self, node_id: int) -> int:
        """Return when the node may be sent a request (ms): now or earlier means at once."""
        found = self._connections.get(node_id)
        if found is None:
            return 0
        return found.ready_ms if found.correlation_id < 0 else found.sent_ms + self._request_timeout_ms

    def sent(self, node_id: int, now_ms: int) -> int:
        """Note a request to the node; return its correlation id."""
        self._last_id += 1
        self._connections[node_id] = _Connection(self._last_id, now_ms)
        return self._last_id

    def received(self, node_id: int, correlation_id: int, is_success: bool, now_ms: int) -> bool:
        """Note a response; return whether it is the one that is waited for."""
        found = self._connections.get(node_id)
        if found is None or found.correlation_id != correlation_id:
            return False
        found.correlation_id = -1
        found.ready_ms = 0 if is_success else now_ms + self._retry_backoff_ms
        return True

    def failed(self, node_id: int, now_ms: int) -> None:
        """Pause before the next request to the node: its response was of no use."""
        if (found := self._connections.get(node_id)) is not None and found.correlation_id < 0:
            found.ready_ms = now_ms + self._retry_backoff_ms

    def forget(self, node_id: int) -> None:
        """Forget a node that nothing is sent to any more; its response counts no more."""
        self._connections.pop(node_id, None)

    def reset(self) -> None:
        """Forget all requests: their responses count no more."""
        self._connections.clear()
