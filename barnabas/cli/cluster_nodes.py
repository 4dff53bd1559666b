"""Requests that librdkafka cannot send, over a connection of our own to any broker of the cluster.

A request is sent in the highest version that both ends know. An older release may not know it at all.
"""

from __future__ import annotations

from typing import Any

from barnabas.cli.address import host_port
from barnabas.cli.errors import UserError
from barnabas.cli.records.reach import check_reachable
from barnabas.cli.security.command_config import connector
from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.protocol.errors import EncodeError
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.schema import Request

TIMEOUT_MS = 15_000
CLIENT_ID = "barnabas-cli"


class OldReleaseError(UserError):
    """The cluster answers as a release of Kafka that does not know a request, or a field of it."""


def ask_any(bootstrap: str, message: Request, version: int, timeout_ms: int = TIMEOUT_MS) -> Any:
    """The response of the first broker that answers; `version` is the highest one. Raises UserError if none does.

    A broker may carry out a request and fail to answer, and the next one gets it again: send only idempotent requests.
    """
    problems = []
    connect = connector(bootstrap)
    for text in bootstrap.split(","):
        host, port = host_port(text)
        try:
            with connect(host, port, timeout_ms=timeout_ms, client_id=CLIENT_ID) as connection:
                return ask(connection, message, version)
        except NodeConnectionError as error:
            problems.append(str(error))
    check_reachable(bootstrap)
    raise UserError(f"no cluster answers at {bootstrap} ({problems[-1]})")


def ask(connection: NodeConnection, message: Request, version: int) -> Any:
    """The response to a request in the highest version that the broker knows, at most `version`.

    Raises NodeConnectionError, and OldReleaseError if the broker is too old for the request.
    """
    ranges = {api.api_key: api for api in connection.send(ApiVersionsRequest(), 0).api_keys}
    name = type(message).__name__.removesuffix("Request")
    where = f"{connection.host}:{connection.port} answers as an older release of Kafka"
    known = ranges.get(message.API_KEY)
    if known is None:
        raise OldReleaseError(f"{where}, which does not know {name}")
    chosen = min(version, known.max_version)
    if chosen < max(message.MIN_VERSION, known.min_version):
        raise OldReleaseError(f"{where}, whose {name} has version {known.max_version} at most")
    try:
        return connection.send(message, chosen)
    except EncodeError as error:  # a field that an older version does not have
        raise OldReleaseError(f"{where}, which does not know all of this request ({error})") from error
