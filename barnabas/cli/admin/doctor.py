"""`barnabas doctor`: why a client cannot connect.

The usual problem with Kafka is not the bootstrap address but the *advertised* address that a broker returns there. So
request the advertised addresses from each listener, connect to every one of them, and report each problem.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from barnabas.cli.address import BOOTSTRAP_NAMES, default_bootstrap, host_port
from barnabas.cli.admin.stray import COLUMNS as STRAY_COLUMNS
from barnabas.cli.admin.stray import rows_of as stray_rows
from barnabas.cli.errors import UserError
from barnabas.cli.local.running import running_directories
from barnabas.cli.output import Row, json_option, show, show_json
from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest

TIMEOUT_MS = 3000
METADATA_VERSION = 12
COLUMNS = ("listener", "advertised", "broker", "resolves_to", "answers", "problem")
ANY_HOST = ("", "0.0.0.0", "::")


class Address(NamedTuple):
    """A listener to check."""

    host: str
    port: int
    is_controller: bool = False
    expected: tuple[int, str, int] | None = None  # broker id, host and port that the file advertises there


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(*BOOTSTRAP_NAMES, metavar="HOST:PORT,...", help="The addresses in the clients' configuration.")
@json_option
def doctor(file: Path | None, bootstrap: str | None, as_json: bool) -> None:
    """Check which addresses each listener advertises, and whether they answer from here.

    With FILE, a server.properties, check its listeners; else the addresses of --bootstrap (default:
    $BARNABAS_BOOTSTRAP, else the running local cluster, else 127.0.0.1:9092). Exits 1 if there is a problem.

    Also list logs that were set aside (barnabas stray): in the log directories of FILE, else of running local clusters.
    """
    if file is not None and bootstrap is not None:
        raise UserError("give FILE or --bootstrap, not both")
    if file is not None:
        addresses = _listeners(file)
    else:
        addresses = [Address(*host_port(text)) for text in (bootstrap or default_bootstrap()).split(",")]
    rows = [row for address in addresses for row in _examine(address)]
    strays = stray_rows(_log_dirs(file, bootstrap))
    if as_json:
        show_json([*rows, *strays])
    else:
        show(rows, COLUMNS, as_json=False)
    if strays and not as_json:
        show(strays, STRAY_COLUMNS, as_json=False, title="Logs that brokers set aside (see barnabas stray --help)")
    problems = sum(row["problem"] is not None for row in rows)
    if problems:
        raise UserError(f"{problems} of {len(rows)} addresses would fail a client")


def _log_dirs(file: Path | None, bootstrap: str | None) -> list[Path]:
    """Where to look for strays: the log directories of a file, or of the brokers of running local clusters."""
    from barnabas.config.config import Config
    from barnabas.config.errors import ConfigError

    files = [file] if file is not None else []
    if file is None and bootstrap is None:
        files = [found for directory in running_directories() for found in directory.glob("broker-*/server.properties")]
    found: list[Path] = []
    for properties in files:
        with contextlib.suppress(ConfigError):  # FILE was loaded once already, by _listeners
            found += [Path(path) for path in Config.load(properties).log_dirs if Path(path).is_dir()]
    return found


def _listeners(file: Path) -> list[Address]:
    from barnabas.config.config import Config
    from barnabas.config.errors import ConfigError

    try:
        config = Config.load(file)
    except ConfigError as error:
        raise UserError(f"{file}: {error}") from error
    controllers = {str(name).upper() for name in config.controller_listener_names}
    advertised = {listener.name: listener for listener in config.advertised_listeners_parsed}
    addresses = []
    for listener in config.listeners_parsed:
        if listener.port == 0:
            raise UserError(f"{file}: listener {listener.name} takes a free port: give its address as --bootstrap")
        host = "127.0.0.1" if listener.host in ANY_HOST else listener.host
        found = advertised.get(listener.name)
        expected = (int(config.node_id), found.host or socket.gethostname(), found.port) if found else None
        addresses.append(Address(host, listener.port, listener.name in controllers, expected))
    return addresses


def _examine(address: Address) -> Iterator[Row]:
    """One row for each address that the listener advertises, or one row with the reason why there is none."""
    host, port = address.host, address.port
    listener = f"{host}:{port}"
    try:
        with _connect(host, port) as connection:
            if address.is_controller:  # it advertises nothing to clients
                connection.send(ApiVersionsRequest(), 0)
                yield _row(listener, None, None, _resolve(host), True, None)
                return
            metadata = _metadata(connection)
    except NodeConnectionError as error:
        yield _row(listener, None, None, _resolve(host), False, str(error))
        if address.expected is not None and address.expected[1:] != (host, port):
            yield _try_connecting(listener, *address.expected)  # the controller, too, has to reach the broker there
        return
    if not metadata.brokers:
        yield _row(listener, None, None, _resolve(host), True, "it answers, but knows no broker yet")
    for broker in sorted(metadata.brokers, key=lambda broker: int(broker.node_id)):
        yield _try(address, str(broker.host), int(broker.port), int(broker.node_id), metadata.cluster_id)


def _try(address: Address, host: str, port: int, broker_id: int, cluster_id: str | None) -> Row:
    """Check whether a client could use this advertised address from here."""
    listener, advertised = f"{address.host}:{address.port}", f"{host}:{port}"
    resolved = _resolve(host)
    if resolved is None:
        return _row(listener, advertised, broker_id, None, False, f"the name {host} does not resolve here")
    try:
        with _connect(host, port) as connection:
            found = _metadata(connection).cluster_id
    except NodeConnectionError as error:
        return _row(listener, advertised, broker_id, resolved, False, str(error))
    problem = None
    if found != cluster_id:
        problem = f"another cluster answers there: {found}, not {cluster_id}"
    elif _is_loopback(resolved) and not _is_loopback(_resolve(address.host) or ""):
        problem = f"{host} is a loopback address: clients on other machines would connect to themselves"
    elif address.expected is not None and address.expected[0] == broker_id and address.expected[1:] != (host, port):
        _, expected_host, expected_port = address.expected
        problem = f"the file says {expected_host}:{expected_port}: restart the broker to advertise it"
    return _row(listener, advertised, broker_id, resolved, True, problem)


def _try_connecting(listener: str, broker_id: int, host: str, port: int) -> Row:
    """Check whether any process listens at an advertised address of a broker that does not answer."""
    try:
        with _connect(host, port) as connection:
            connection.connect()
    except NodeConnectionError as error:
        return _row(listener, f"{host}:{port}", broker_id, _resolve(host), False, str(error))
    return _row(listener, f"{host}:{port}", broker_id, _resolve(host), True, None)


def _connect(host: str, port: int) -> NodeConnection:
    return NodeConnection(host, port, timeout_ms=TIMEOUT_MS, client_id="barnabas-doctor")


def _metadata(connection: NodeConnection) -> MetadataResponse:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    response: MetadataResponse = connection.send(request, METADATA_VERSION)
    return response


def _row(
    listener: str, advertised: str | None, broker: int | None, resolved: str | None, answers: bool, problem: str | None
) -> Row:
    return dict(zip(COLUMNS, (listener, advertised, broker, resolved, answers, problem), strict=True))


def _resolve(host: str) -> str | None:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        return None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
