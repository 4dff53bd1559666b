"""Requests that librdkafka cannot send, over a connection of our own to any broker of the cluster."""

from __future__ import annotations

from typing import Any

from barnabas.cli.address import host_port
from barnabas.cli.errors import UserError
from barnabas.cli.records.reach import check_reachable
from barnabas.cli.security.command_config import connector
from barnabas.client.connection import NodeConnectionError
from barnabas.protocol.schema import Request

TIMEOUT_MS = 15_000
CLIENT_ID = "barnabas-cli"


def ask_any(bootstrap: str, message: Request, version: int, timeout_ms: int = TIMEOUT_MS) -> Any:
    """The response of the first broker that answers. Raises UserError if none does.

    A broker may carry out a request and fail to answer, and the next one gets it again: send only idempotent requests.
    """
    problems = []
    connect = connector(bootstrap)
    for text in bootstrap.split(","):
        host, port = host_port(text)
        try:
            with connect(host, port, timeout_ms=timeout_ms, client_id=CLIENT_ID) as connection:
                return connection.send(message, version)
        except NodeConnectionError as error:
            problems.append(str(error))
    check_reachable(bootstrap)
    raise UserError(f"no cluster answers at {bootstrap} ({problems[-1]})")
