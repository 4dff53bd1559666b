"""Finds the coordinator of a group or a transactional id by our own requests, since a client hides the responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.cluster import Node
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION = 0, 1  # key types
TIMEOUT_MS = 1_000
VERSION = 3


def find_coordinator(
    brokers: Sequence[Node], key: str, key_type: int = GROUP, connect: Connect = NodeConnection
) -> Node | None:
    """The coordinator according to the first broker that answers; None if none answers, or there is none now."""
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    for broker in brokers:
        answer = None if broker.paused else ask(broker, request, VERSION, connect)
        if answer is not None and not answer.error_code:
            return next(node for node in brokers if node.node_id == answer.node_id)
    return None


def ask(node: Node, request: Any, version: int, connect: Connect = NodeConnection) -> Any:
    """A node's response; None if there is none within a second."""
    with connect(node.host, node.port, timeout_ms=TIMEOUT_MS) as connection:
        try:
            return connection.send(request, version)
        except NodeConnectionError:
            return None
