"""The requests that a fault matches, by their API, sender and partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from barnabas.faults.definition import API_KEYS
from barnabas.protocol.api_keys import ROWS, ApiKey

if TYPE_CHECKING:
    from barnabas.broker.requests.request import Request
    from barnabas.faults.definition import Fault

Partition = tuple[str, int | None]  # a topic's name, and an index where the request names partitions

_NODE_CLIENT: Final = re.compile(r"broker-([0-9]{1,10})-(?:fetcher-[0-9]+|lag-exporter)|([0-9]{1,10})")
#: Requests that nodes send each other; the client id identifies a node's other requests.
_BETWEEN_NODES: Final = frozenset(int(key) for key, row in ROWS.items() if row.cluster_action) | {
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
}
_ADD_PARTITIONS_BY_BROKERS: Final = 4
_GROUP_LISTS: Final = ("groups", "group_ids", "groups_names")


def sending_node(request: Request) -> int | None:
    """Return the id of the broker or controller that sent a request; None for a client's.

    The client id of a node is `7` or `broker-7-fetcher-0`. A client may also have the id `7`, so a number alone counts
    only in requests that nodes send each other.
    """
    found = _NODE_CLIENT.fullmatch(request.header.client_id or "")
    if found is None:
        return None
    by_role, number = found.groups()
    if by_role is not None:
        return int(by_role)
    return int(number) if _is_between_nodes(request) else None


def _is_between_nodes(request: Request) -> bool:
    key, version = request.header.api_key, request.header.api_version
    if key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return version >= _ADD_PARTITIONS_BY_BROKERS
    return key in _BETWEEN_NODES


class Matcher:
    """The conditions of one fault. Fixed before start."""

    def __init__(self, fault: Fault) -> None:
        names = fault.api if isinstance(fault.api, tuple) else ()
        self._keys = frozenset(API_KEYS[name.lower()] for name in names)
        self._fault = fault
        self._sender = fault.sender or "clients"

    def concerns(self, request: Request, sender: int | None) -> bool:
        """Whether the fault matches a request, apart from its topics."""
        fault, header, context = self._fault, request.header, request.context
        if self._keys and header.api_key not in self._keys:
            return False
        if self._sender != "any" and (sender is None) != (self._sender == "clients"):
            return False
        return (
            _fits(fault.client_id, header.client_id)
            and (_fits(fault.connection, context.connection_id) or _fits(fault.connection, _peer(request)))
            and _fits(fault.listener, context.listener_name)
            and _fits(fault.principal, context.principal)
            and (fault.group is None or any(_fits(fault.group, group) for group in groups_of(request.message)))
        )

    def fits(self, topic: str, partition: int | None) -> bool:
        """Whether the fault matches a partition; None stands for the whole topic."""
        fault = self._fault
        return _fits(fault.topic, topic) and (fault.partition is None or fault.partition == partition)

    def chosen(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return the matching ones of a request's partitions."""
        return [partition for partition in partitions if self.fits(*partition)]


def _fits(pattern: str | None, text: str | None) -> bool:
    return pattern is None or fnmatchcase(text or "", pattern)


def _peer(request: Request) -> str:
    return f"{request.context.client_address}:{request.context.client_port}"


def groups_of(message: Any) -> list[str]:
    """Return the groups of a request, as its version names them."""
    if getattr(message, "group_id", None):
        return [message.group_id]
    several = next((names for field in _GROUP_LISTS if (names := getattr(message, field, None))), ())
    return [group if isinstance(group, str) else group.group_id for group in several]
