"""Requests that librdkafka cannot send: to any one broker of a cluster, over a connection of our own."""

from __future__ import annotations

from typing import Any

from barnabas.cli.address import host_port
from barnabas.cli.errors import UserError
from barnabas.cli.reach import check_reachable
from barnabas.client.connection import NodeConnection, NodeConnectionError

TIMEOUT_MS = 15_000
CLIENT_ID = "barnabas-cli"


def ask_any(bootstrap: str, message: Any, version: int, timeout_ms: int = TIMEOUT_MS) -> Any:
    """What the first broker that answers says. Raises UserError if none does.

    A broker that was asked and did not answer may have done it: only requests that may be repeated are to be sent so.
    """
    problems = []
    for text in bootstrap.split(","):
        host, port = host_port(text)
        try:
            with NodeConnection(host, port, timeout_ms=timeout_ms, client_id=CLIENT_ID) as connection:
                return connection.send(message, version)
        except NodeConnectionError as error:
            problems.append(str(error))
    check_reachable(bootstrap)
    raise UserError(f"no cluster answers at {bootstrap} ({problems[-1]})")
