"""Whether a client's address leads to a broker at all. librdkafka asks on for many seconds, whatever it meets.

Only what is certain is told: nobody listens, the name is unknown, another protocol answers, or a controller. Who says
nothing yet may be slow or paused, and who closes the connection may be starting: the client goes on trying then.
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
    """Raise UserError if no address of these can be a broker's."""
    problems = []
    for text in bootstrap.split(","):
        problem = _problem(*host_port(text))
        if problem is None:
            return
        problems.append(problem)
    raise UserError("; ".join(problems))


def _problem(host: str, port: int) -> str | None:
    """Why no broker's client can use an address; None if one may."""
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
