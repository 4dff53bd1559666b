"""Nodes: who may send what only brokers and controllers send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.security.acls.rules import Reason

if TYPE_CHECKING:
    from barnabas.broker.requests.request import Request


def is_node_by_listener(request: Request) -> bool:
    """Return whether only the listener can show that a request is a node's: no rule of an authorizer says so.

    That is rule 4 of the authorizer.
    """
    access = request.access
    return access is None or access.reason_to_be_a_node in (Reason.DEFAULT_ALLOW, Reason.NOT_READY)
