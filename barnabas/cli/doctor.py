"""`barnabas doctor`: why a client cannot connect.

The usual trouble with Kafka is not the port that a client is given but the address that it is told *there*. So ask
each address what it tells clients, then try every address that was told, and say for each what was wrong.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from barnabas.cli.client import bootstrap_option
from barnabas.cli.errors import UserError
from barnabas.cli.output import json_option, show
from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.config.errors import ConfigError
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest

TIMEOUT_MS = 3000
COLUMNS = ("asked", "is_told", "broker", "resolves_to", "answers", "problem")


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@bootstrap_option
@json_option
def doctor(file: Path | None, bootstrap: str, as_json: bool) -> None:
    """Ask each listener what it tells clients, and whether those addresses answer from here.

    With FILE, a server.properties, ask its listeners; else the addresses of --bootstrap. Exits 1 if anything is wrong.
    """
    addresses = _listeners(file) if file else [_host_port(text) for text in bootstrap.split(",")]
    rows = [row for address in addresses for row in _examine(*address)]
    show(rows, COLUMNS, as_json=as_json)
    problems = sum(row["problem"] is not None for row in rows)
    if problems:
        raise UserError(f"{problems} of {len(rows)} addresses would fail a client")


def _host_port(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"'{text}' is not HOST:PORT")
    return host.strip("[]"), int(port)


def _listeners(file: Path) -> list[tuple[str, int]]:
    from barnabas.config import Config

    try:
        config = Config.load(file)
    except ConfigError as error:
        raise UserError(str(error)) from error
    return [(listener.host or "127.0.0.1", listener.port) for listener in config.listeners_parsed]


def _examine(host: str, port: int) -> Iterator[dict[str, Any]]:
    """One row an address that the listener at host:port tells clients, or one row that says why there is none."""
    asked = f"{host}:{port}"
    try:
        with NodeConnection(host, port, timeout_ms=TIMEOUT_MS, client_id="barnabas-doctor") as connection:
            told = connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
    except NodeConnectionError as error:
        yield _row(asked, None, None, _resolve(host), False, str(error))
        return
    if not told.brokers:
        yield _row(asked, None, None, _resolve(host), True, "it answers, but knows no broker yet")
    for broker in sorted(told.brokers, key=lambda broker: int(broker.node_id)):
        yield _try(asked, str(broker.host), int(broker.port), int(broker.node_id))


def _try(asked: str, host: str, port: int, broker_id: int) -> dict[str, Any]:
    """Whether a client could use this advertised address from here."""
    resolved = _resolve(host)
    if resolved is None:
        return _row(asked, f"{host}:{port}", broker_id, None, False, f"the name {host} does not resolve here")
    try:
        with NodeConnection(host, port, timeout_ms=TIMEOUT_MS, client_id="barnabas-doctor") as connection:
            connection.send(ApiVersionsRequest(), 0)
    except NodeConnectionError as error:
        return _row(asked, f"{host}:{port}", broker_id, resolved, False, str(error))
    return _row(asked, f"{host}:{port}", broker_id, resolved, True, None)


def _row(
    asked: str, told: str | None, broker: int | None, resolved: str | None, answers: bool, problem: str | None
) -> dict[str, Any]:
    return dict(zip(COLUMNS, (asked, told, broker, resolved, "yes" if answers else "no", problem), strict=True))


def _resolve(host: str) -> str | None:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None
