"""`barnabas quorum`: the controllers that elect, how far each is, and changes of the voters (KIP-853)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.address import bootstrap_option, bootstrap_or_default, host_port
from barnabas.cli.admin.quorum_words import COLUMNS, QuorumView, as_dict, refusal, sentences, table_rows, view_of
from barnabas.cli.cluster_nodes import CLIENT_ID, TIMEOUT_MS, ask_any
from barnabas.cli.errors import ArgumentError, RequestError, UserError
from barnabas.cli.output import json_option, show
from barnabas.cli.security.command_config import connector
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import SystemClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.ids import uuid_from_string
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, Listener
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest

if TYPE_CHECKING:
    from barnabas.config.config import Config
    from barnabas.protocol.schema import Request

T = TypeVar("T")
METADATA_TOPIC = "__cluster_metadata"
DESCRIBE_VERSION, CLUSTER_VERSION, CHANGE_VERSION = 2, 1, 0
CONTROLLERS = 2  # the endpoint type of DescribeCluster
NOT_THE_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER})

Ask = Callable[["Request", int], Any]


def _cluster_options(command: Callable[..., T]) -> Callable[..., T]:
    """`--bootstrap` and `--bootstrap-controller`."""
    option = click.option(
        "--bootstrap-controller",
        "controllers",
        metavar="HOST:PORT,...",
        help="Ask the controllers themselves, also while no broker runs.",
    )
    return option(bootstrap_option(command, has_default=False))


@click.group()
def quorum() -> None:
    """Show which controllers elect the active one, and add or remove voters."""


@quorum.command()
@_cluster_options
@json_option
def status(bootstrap: str | None, controllers: str | None, as_json: bool) -> None:
    """Show which controller leads, since when, and how far the others are behind it."""
    view = _described(_asker(bootstrap, controllers))
    if as_json:
        click.echo(json.dumps(as_dict(view)))
        return
    for sentence in sentences(view):
        click.echo(sentence)
    show(table_rows(view), COLUMNS, as_json=False)


@quorum.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_cluster_options
def add(file: Path, bootstrap: str | None, controllers: str | None) -> None:
    """Make the controller of FILE, its server.properties, a voter.

    Start it first, with controller.quorum.bootstrap.servers and its directory formatted: it must have fetched the whole
    log. FILE and its directory are read on this machine.
    """
    node_id, directory_id, listener = _controller_of(file)
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=TIMEOUT_MS,
        voter_id=node_id,
        voter_directory_id=uuid_from_string(directory_id),
        listeners=[listener],
    )
    _change(_asker(bootstrap, controllers)(request, CHANGE_VERSION), node_id, directory_id)
    click.echo(f"controller {node_id} with directory {directory_id} at {listener.host}:{listener.port} votes now")


@quorum.command()
@click.argument("controller_id", metavar="ID", type=click.IntRange(min=0))
@click.option("--directory-id", help="The id of its log directory. Default: that of the voter ID.")
@_cluster_options
def remove(controller_id: int, directory_id: str | None, bootstrap: str | None, controllers: str | None) -> None:
    """Remove controller ID from the voters. It goes on as an observer until it is stopped."""
    ask = _asker(bootstrap, controllers)
    if directory_id is None:
        found = next((member for member in _described(ask).voters if member.id == controller_id), None)
        if found is None:
            raise UserError(f"controller {controller_id} is no voter: see barnabas quorum status")
        directory_id = found.directory_id
    request = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=controller_id, voter_directory_id=_directory(directory_id)
    )
    _change(ask(request, CHANGE_VERSION), controller_id, directory_id)
    click.echo(f"controller {controller_id} with directory {directory_id} does not vote any more")


def _described(ask: Ask) -> QuorumView:
    partitions = [RequestPartitionData(partition_index=0)]
    request = DescribeQuorumRequest(topics=[RequestTopicData(topic_name=METADATA_TOPIC, partitions=partitions)])
    response = ask(request, DESCRIBE_VERSION)
    error = _error_of(response)
    if error is not ErrorCode.NONE:
        raise RequestError(refusal(error, response.error_message), (error.name,))
    return view_of(response, SystemClock().wall_ms())


def _error_of(response: Any) -> ErrorCode:
    """Return the error of a response, or of the one partition that it describes."""
    topics = getattr(response, "topics", ())
    codes = [response.error_code, *(found.error_code for topic in topics for found in topic.partitions)]
    return ErrorCode.of(next(filter(None, codes), 0))


def _change(response: Any, node_id: int, directory_id: str) -> None:
    error = ErrorCode.of(response.error_code)
    if error is not ErrorCode.NONE:
        raise RequestError(refusal(error, response.error_message, node_id, directory_id), (error.name,))


def _asker(bootstrap: str | None, controllers: str | None) -> Ask:
    """Return what asks the leader: through a broker, or directly.

    A change may be carried out and its answer lost; then the second attempt finds it done already, and says so.
    """
    if controllers is None:
        brokers = bootstrap_or_default(bootstrap)
        return lambda request, version: ask_any(brokers, request, version)
    addresses = [host_port(text) for text in controllers.split(",")]
    return lambda request, version: _ask_leader(controllers, addresses, request, version)


def _ask_leader(controllers: str, addresses: list[tuple[str, int]], request: Request, version: int) -> Any:
    """Return the response of the leader, or else the last one; raises UserError if no controller answers."""
    connect = connector(controllers)
    problems: list[str] = []
    response = None
    for host, port in [*_active(controllers, addresses), *addresses]:
        try:
            with connect(host, port, timeout_ms=TIMEOUT_MS, client_id=CLIENT_ID) as connection:
                response = connection.send(request, version)
        except NodeConnectionError as error:
            problems.append(str(error))
            continue
        if _error_of(response) not in NOT_THE_LEADER:
            return response
    if response is None:
        raise UserError(f"no controller answers at {controllers} ({problems[-1]})")
    return response


def _active(controllers: str, addresses: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return where the active controller is, as one of the controllers says; nothing if none knows."""
    connect = connector(controllers)
    for host, port in addresses:
        try:
            with connect(host, port, timeout_ms=TIMEOUT_MS, client_id=CLIENT_ID) as connection:
                found = connection.send(DescribeClusterRequest(endpoint_type=CONTROLLERS), CLUSTER_VERSION)
        except NodeConnectionError:
            continue
        if active := [(each.host, each.port) for each in found.brokers if each.broker_id == found.controller_id]:
            return active
    return []


def _directory(text: str) -> bytes:
    try:
        return uuid_from_string(text)
    except ValueError:
        raise ArgumentError(f"'{text}' is no directory id: see barnabas quorum status") from None


def _controller_of(file: Path) -> tuple[int, str, Listener]:
    """Return id, directory id and listener of the controller that has this configuration; raises UserError."""
    from barnabas.broker.storage.directories.checkpoints import CorruptCheckpointError, read_meta_properties
    from barnabas.broker.storage.directories.names import META_PROPERTIES_FILE
    from barnabas.config.config import CONTROLLER, Config
    from barnabas.config.errors import ConfigError

    try:
        config = Config.load(file, role=CONTROLLER, environment=os.environ)
        path = f"{config.metadata_log_dir}/{META_PROPERTIES_FILE}"
        properties = read_meta_properties(OsFileSystem(), path)
    except (ConfigError, CorruptCheckpointError, OSError) as error:
        raise UserError(str(error)) from error
    if properties is None or "directory.id" not in properties:
        raise UserError(f"{path} has no directory.id: start the controller first")
    return int(config.node_id), properties["directory.id"], _listener(file, config)


def _listener(file: Path, config: Config) -> Listener:
    found = config.controller_endpoint()
    if found is None or not found[1] or not found[2]:
        raise UserError(f"{file}: advertised.listeners must have host and port of the controllers' listener")
    return Listener(name=found[0], host=found[1], port=found[2])
