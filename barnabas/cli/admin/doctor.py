"""`barnabas doctor`: why a client cannot connect.

The usual problem with Kafka is not the bootstrap address but the *advertised* address that a broker returns there. So
request the advertised addresses from each listener, connect to every one of them, and report each problem. On a secured
listener that includes its certificate (name, chain, expiry, clocks) and the login.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.address import BOOTSTRAP_NAMES, bootstrap_or_default, host_port
from barnabas.cli.admin.stray import COLUMNS as STRAY_COLUMNS
from barnabas.cli.admin.stray import rows_of as stray_rows
from barnabas.cli.errors import ArgumentError, UserError
from barnabas.cli.local.running import running_directories
from barnabas.cli.output import Row, json_option, show, show_json
from barnabas.cli.security.command_config import chosen, command_config_option, connector, settings_for
from barnabas.cli.security.diagnosis import certificate_of, certificate_words, expiry_problem, explain
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.clock import SystemClock
from barnabas.common.processes.host_name import own_host_name
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from barnabas.config.config import Config
    from barnabas.config.listeners import Listener

TIMEOUT_MS = 3000
METADATA_VERSION = 4  # of every release that a cluster can answer as
COLUMNS = ("listener", "advertised", "broker", "resolves_to", "answers", "problem", "certificate")
ANY_HOST = ("", "0.0.0.0", "::")


class Address(NamedTuple):
    """A listener to check."""

    host: str
    port: int
    is_controller: bool = False
    expected: tuple[int, str, int] | None = None  # broker id, host and port that the file advertises there
    connect: Connect = NodeConnection
    is_tls: bool = False
    problem: str | None = None  # why nobody can connect to it
    has_login: bool = True  # False: it asks for a login, and we have none


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(*BOOTSTRAP_NAMES, metavar="HOST:PORT,...", help="The addresses in the clients' configuration.")
@command_config_option
@json_option
def doctor(file: Path | None, bootstrap: str | None, as_json: bool) -> None:
    """Check which addresses each listener advertises, and whether they answer from here.

    With FILE, a server.properties, check its listeners; else the addresses of --bootstrap (default:
    bootstrap.servers of --command-config, else $BARNABAS_BOOTSTRAP, else the running local cluster, else
    127.0.0.1:9092). Exits 1 if there is a problem.

    With --command-config, a client's security settings are checked, too: the listener's certificate (name, issuer,
    dates, clocks) and the login. The listeners of FILE are checked as another broker would use them.

    Also list logs that were set aside (barnabas stray): in the log directories of FILE, else of running local clusters.
    """
    if file is not None and bootstrap is not None:
        raise ArgumentError("give FILE or --bootstrap, not both")
    if file is not None:
        addresses = _listeners(file)
    else:
        bootstrap_used = bootstrap_or_default(bootstrap)
        properties, connect = settings_for(bootstrap_used), connector(bootstrap_used)
        is_tls = properties is not None and properties.protocol.endswith("SSL")
        addresses = [Address(*host_port(text), connect=connect, is_tls=is_tls) for text in bootstrap_used.split(",")]
    rows = [row for address in addresses for row in _examine(address)]
    strays = stray_rows(_log_dirs(file, bootstrap))
    if as_json:
        show_json([*rows, *strays])
    else:
        has_certificates = any(row["certificate"] for row in rows)
        show(rows, COLUMNS if has_certificates else COLUMNS[:-1], as_json=False)
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
        expected = (int(config.node_id), found.host or own_host_name(), found.port) if found else None
        connect, problem = _as_a_broker_does(config, listener)
        protocol, is_controller = listener.security_protocol, listener.name in controllers
        has_login = not protocol.startswith("SASL_") or is_controller
        given = chosen()
        if listener.name == config.inter_broker_listener_name:
            has_login = True
        elif problem is None and given is not None and given.protocol == protocol and not is_controller:
            connect, has_login = connector(f"{host}:{listener.port}"), True
        is_tls = protocol.endswith("SSL")
        addresses.append(Address(host, listener.port, is_controller, expected, connect, is_tls, problem, has_login))
    return addresses


def _as_a_broker_does(config: Config, listener: Listener) -> tuple[Connect, str | None]:
    """Return how another broker connects to a listener, and the reason if nobody can: its own keys.

    On a listener that only clients log in to, the result connects without a login.
    """
    from barnabas.client.security import ClientSecurity, security_of_brokers, security_of_controller
    from barnabas.config.errors import ConfigError
    from barnabas.security.tls.endpoints import TlsEndpoints

    name, protocol, clock = listener.name, listener.security_protocol, SystemClock()
    is_tls = protocol.endswith("SSL")
    try:
        if is_tls:
            TlsEndpoints(config.originals, clock.wall_ms).listener(name, protocol)
        if protocol.startswith("SASL_"):
            _check_kerberos(config, name)
        endpoints = TlsEndpoints(config.originals, clock.wall_ms)
        if name == str(config.controller_listener_names[0]).upper():
            security = security_of_controller(endpoints, config, clock)
        elif name == config.inter_broker_listener_name:
            security = security_of_brokers(endpoints, config, clock)
        elif protocol == "PLAINTEXT":
            security = None
        else:
            security = ClientSecurity(name, protocol, endpoints.peer(name, protocol) if is_tls else None)
        return partial(NodeConnection, security=security), None
    except ConfigError as error:
        return NodeConnection, str(error)


def _check_kerberos(config: Config, listener: str) -> None:
    """Raise ConfigError if nobody could log in to a listener by GSSAPI: no package, no keytab, no key in it."""
    from barnabas.security.sasl.mechanism import GSSAPI
    from barnabas.security.sasl.scopes import ListenerScope, Scope

    if GSSAPI in ListenerScope(config, listener).value("sasl.enabled.mechanisms"):
        from barnabas.security.sasl.gssapi.server_settings import kerberos_server  # Why here: it brings a library

        kerberos_server(Scope(config, listener, GSSAPI))


def _examine(address: Address) -> Iterator[Row]:
    """One row for each address that the listener advertises, or one row with the reason why there is none."""
    host, port = address.host, address.port
    listener = f"{host}:{port}"
    if address.problem is not None:
        yield _row(listener, None, None, _resolve(host), False, address.problem)
        return
    try:
        with _connect(address, host, port) as connection:
            if address.is_controller or not address.has_login:  # it advertises nothing to us
                connection.send(ApiVersionsRequest(), 0)
                certificate = certificate_of(host, port) if address.is_tls else None
                problem = None if certificate is None else expiry_problem(certificate, SystemClock())
                words = None if certificate is None else certificate_words(certificate)
                yield _row(listener, None, None, _resolve(host), True, problem, words)
                return
            metadata = _metadata(connection)
    except NodeConnectionError as error:
        yield _row(listener, None, None, _resolve(host), False, explain(error, host, port, address.connect))
        if address.expected is not None and address.expected[1:] != (host, port):
            yield _try_connecting(
                address, listener, *address.expected
            )  # the controller, too, has to reach the broker there
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
        with _connect(address, host, port) as connection:
            found = _metadata(connection).cluster_id
    except NodeConnectionError as error:
        reason = explain(error, host, port, address.connect)
        return _row(listener, advertised, broker_id, resolved, False, reason)
    certificate = certificate_of(host, port) if address.is_tls else None
    problem = None
    if found != cluster_id:
        problem = f"another cluster answers there: {found}, not {cluster_id}"
    elif _is_loopback(resolved) and not _is_loopback(_resolve(address.host) or ""):
        problem = f"{host} is a loopback address: clients on other machines would connect to themselves"
    elif address.expected is not None and address.expected[0] == broker_id and address.expected[1:] != (host, port):
        _, expected_host, expected_port = address.expected
        problem = f"the file says {expected_host}:{expected_port}: restart the broker to advertise it"
    if certificate is None:
        return _row(listener, advertised, broker_id, resolved, True, problem)
    problem = problem or expiry_problem(certificate, SystemClock())
    return _row(listener, advertised, broker_id, resolved, True, problem, certificate_words(certificate))


def _try_connecting(address: Address, listener: str, broker_id: int, host: str, port: int) -> Row:
    """Check whether any process listens at an advertised address of a broker that does not answer."""
    try:
        with _connect(address, host, port) as connection:
            connection.connect()
    except NodeConnectionError as error:
        return _row(listener, f"{host}:{port}", broker_id, _resolve(host), False, str(error))
    return _row(listener, f"{host}:{port}", broker_id, _resolve(host), True, None)


def _connect(address: Address, host: str, port: int) -> NodeConnection:
    return address.connect(host, port, timeout_ms=TIMEOUT_MS, client_id="barnabas-doctor")


def _metadata(connection: NodeConnection) -> MetadataResponse:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    response: MetadataResponse = connection.send(request, METADATA_VERSION)
    return response


def _row(
    listener: str,
    advertised: str | None,
    broker: int | None,
    resolved: str | None,
    answers: bool,
    problem: str | None,
    certificate: str | None = None,
) -> Row:
    return dict(zip(COLUMNS, (listener, advertised, broker, resolved, answers, problem, certificate), strict=True))


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
