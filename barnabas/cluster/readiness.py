"""Waits until clients can use the nodes of a local cluster."""

from __future__ import annotations

import select
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from barnabas.cluster import plain_probe
from barnabas.cluster.errors import CancelledError, ProcessDiedError
from barnabas.cluster.node import Node
from barnabas.common.clock import Clock
from barnabas.common.deadline import Deadline
from barnabas.common.processes.ports import HOST

if TYPE_CHECKING:
    from barnabas.client.connection import Connect

PROBE_TIMEOUT_MS: Final = 5_000  # for one response: in slow motion it takes seconds
POLL_MS_MIN: Final = 8
POLL_MS_MAX: Final = 100
POLL_SHARE: Final = 20  # a pause is at most this fraction (1/20) of the time waited so far


def never() -> bool:
    """Default `is_cancelled`: never."""
    return False


def await_nodes(
    nodes: Iterable[Node],
    expected: Collection[int],
    timeout_ms: int,
    clock: Clock,
    is_cancelled: Callable[[], bool] = never,
    connect: Connect | None = None,
) -> None:
    """Wait until each of these nodes is ready; a broker is when it lists all `expected` broker ids.

    `connect` makes connections to the listeners between nodes of a secured cluster; None: to those for clients. Raises
    ProcessDiedError when a node ends or time is up, CancelledError when `is_cancelled` returns true.
    """
    start_ms = clock.monotonic_ms()
    deadline = Deadline(clock, timeout_ms)
    waiting = [node for node in nodes if node.child is not None]
    while waiting:
        for node in waiting:
            if not node.is_running:
                raise ProcessDiedError(f"{node.name} ended at start: {node.last_words()}")
        if is_cancelled():
            raise CancelledError("cancelled while starting")
        if deadline.is_expired():
            raise ProcessDiedError(
                f"{waiting[0].name} was not ready after {timeout_ms} ms; its log is {waiting[0].log_file}"
            )
        waiting = [node for node in waiting if not is_ready(node, expected, connect)]
        if waiting:
            waited_ms = clock.monotonic_ms() - start_ms
            pause_ms = min(max(waited_ms / POLL_SHARE, POLL_MS_MIN), POLL_MS_MAX)
            select.select([], [], [], pause_ms / 1000)


def is_ready(node: Node, expected: Collection[int], connect: Connect | None = None) -> bool:
    """Return whether a broker lists all `expected` broker ids, or whether a controller responds."""
    if node.role == "broker":
        port = node.port if connect is None else node.internal_port or node.port
        return known_brokers(port, node.host, connect).issuperset(expected)
    try:
        if connect is None:
            plain_probe.ask_versions(node.host, node.port, PROBE_TIMEOUT_MS / 1000)
        else:
            _ask_versions(connect, node)
    except OSError:
        return False
    return True


def known_brokers(port: int, host: str = HOST, connect: Connect | None = None) -> set[int]:
    """Return the broker ids in a broker's Metadata response; empty while the broker does not respond."""
    try:
        if connect is None:
            return plain_probe.listed_brokers(host, port, PROBE_TIMEOUT_MS / 1000)
        return _listed_brokers(connect, host, port)
    except OSError:
        return set()


def _ask_versions(connect: Connect, node: Node) -> None:
    from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest  # Why here: few clusters are secured

    with connect(node.host, node.port, timeout_ms=PROBE_TIMEOUT_MS) as connection:
        connection.send(ApiVersionsRequest(), 0)


def _listed_brokers(connect: Connect, host: str, port: int) -> set[int]:
    from barnabas.protocol.messages.k03_metadata import MetadataRequest

    with connect(host, port, timeout_ms=PROBE_TIMEOUT_MS) as connection:
        response = connection.send(MetadataRequest(topics=[]), plain_probe.METADATA_VERSION)
    if response.controller_id < 0:  # no broker is live: those that were last are listed
        return set()
    return {broker.node_id for broker in response.brokers}
