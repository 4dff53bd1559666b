"""Checks whether an address leads to a broker, since librdkafka retries any failure for many seconds.

Only certain failures are errors: nothing listens, the name does not resolve, another protocol answers, or a controller,
or the two ends do not agree on TLS.
A broker that does not answer may be slow or paused, and one that closes the connection may be starting. The client then
keeps trying.
"""

from __future__ import annotations

import socket

from barnabas.cli.address import host_port
from barnabas.cli.errors import UserError
from barnabas.cli.security.command_config import connector
from barnabas.cli.security.diagnosis import explain, is_certain
from barnabas.client.connection import Connect, NodeConnectionError
from barnabas.common.processes.causes import cause_of
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest

TIMEOUT_MS = 1000  # to connect, and to answer
METADATA_KEY = 3
METADATA_VERSION = 12


def check_reachable(bootstrap: str) -> None:
    """Raise UserError if none of these addresses can be a broker's."""
    problems = []
    connect = connector(bootstrap)
    for text in bootstrap.split(","):
        problem = _problem(connect, *host_port(text))
        if problem is None:
            return
        problems.append(problem)
    raise UserError("; ".join(problems))


def _problem(connect: Connect, host: str, port: int) -> str | None:
    """Why clients cannot use an address; None if they may."""
    where = f"{host}:{port}"
    try:
        with connect(host, port, timeout_ms=TIMEOUT_MS, client_id="barnabas-cli") as connection:
            answer = connection.send(ApiVersionsRequest(), 0)
            ranges = {api.api_key: api.max_version for api in answer.api_keys}
            if METADATA_KEY in ranges:  # a listener that asks for a login closes the connection now
                connection.send(MetadataRequest(topics=[]), min(ranges[METADATA_KEY], METADATA_VERSION))
    except NodeConnectionError as error:
        match cause_of(error):
            case ConnectionRefusedError():
                return f"nothing listens at {where}; start one: barnabas up"
            case socket.gaierror():
                return f"the name {host} does not resolve here"
            case MalformedMessageError():
                return f"what listens at {where} does not speak Kafka's protocol"
            case ConnectionResetError():
                words = explain(error, host, port, connect)
                return None if words == str(error) else words
            case _ if is_certain(error):
                return explain(error, host, port, connect)
            case _:
                return None
    if METADATA_KEY not in ranges:
        return f"a controller listens at {where}: clients talk to brokers"
    return None
