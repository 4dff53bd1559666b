"""Checks whether an address leads to a broker, since librdkafka retries any failure for many seconds.

Only certain failures are errors: nothing listens, the name does not resolve, another protocol answers, or a controller.
A broker that does not answer may be slow or paused, and one that closes the connection may be starting. The client then
keeps trying.
"""

from __future__ import annotations

import socket

from barnabas.cli.address import host_port
from barnabas.cli.errors import UserError
from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest

TIMEOUT_MS = 1000  # to connect, and to answer
METADATA_KEY = 3


def check_reachable(bootstrap: str) -> None:
    """Raise UserError if none of these addresses can be a broker's."""
    problems = []
    for text in bootstrap.split(","):
        problem = _problem(*host_port(text))
        if problem is None:
            return
        problems.append(problem)
    raise UserError("; ".join(problems))


def _problem(host: str, port: int) -> str | None:
    """Why clients cannot use an address; None if they may."""
    where = f"{host}:{port}"
    try:
        with NodeConnection(host, port, timeout_ms=TIMEOUT_MS, client_id="barnabas-cli") as connection:
            answer = connection.send(ApiVersionsRequest(), 0)
    except NodeConnectionError as error:
        match error.__cause__:
            case ConnectionRefusedError():
                return f"nothing listens at {where}; start one: barnabas up"
            case socket.gaierror():
                return f"the name {host} does not resolve here"
            case MalformedMessageError():
                return f"what listens at {where} does not speak Kafka's protocol"
            case _:
                return None
    if METADATA_KEY not in {api.api_key for api in answer.api_keys}:
        return f"a controller listens at {where}: clients talk to brokers"
    return None
