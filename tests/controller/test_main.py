"""A controller with its threads and sockets, in this process and in its own.

Also covers `controller/apis/k18_api_versions.py`, `controller/apis/k58_envelope.py`,
`controller/apis/k60_describe_cluster.py`, `controller/apis/k62_broker_registration.py`,
`controller/apis/k63_broker_heartbeat.py`, `controller/apis/k67_allocate_producer_ids.py`,
`controller/apis/k19_create_topics.py`, `controller/apis/k20_delete_topics.py`, `controller/apis/k33_alter_configs.py`,
`controller/apis/k37_create_partitions.py`, `controller/apis/k43_elect_leaders.py`,
`controller/apis/k44_incremental_alter_configs.py`, `controller/apis/k45_alter_partition_reassignments.py`,
`controller/apis/k46_list_partition_reassignments.py`, `controller/apis/k56_alter_partition.py`,
`controller/apis/k57_update_features.py`, `controller/apis/k64_unregister_broker.py`,
`controller/apis/k70_controller_registration.py`, `controller/apis/k73_assign_replicas_to_dirs.py`,
`controller/apis/services.py` and `controller/apis/table.py`.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.channels.forwarding import encode_principal
from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.common.clock import SystemClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.controller import main
from barnabas.controller.apis.table import LOCAL_TABLE
from barnabas.controller.main import ControllerServer
from barnabas.controller.raft.client.interface import LeaderAndEpoch
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k19_create_topics import CreateTopicsRequest
from barnabas.protocol.messages.k33_alter_configs import AlterConfigsRequest
from barnabas.protocol.messages.k37_create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.k43_elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.k56_alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.k73_assign_replicas_to_dirs import AssignReplicasToDirsRequest
from tests.controller.decisions.test_registration import controller_request
from tests.controller.rig import CLUSTER_ID, make_config, manual_topic, registration, topic


@pytest.fixture
def server() -> Iterator[ControllerServer]:
    config = make_config(barnabas_metrics_port="-1")
    server = ControllerServer(config, SystemClock(), MemoryFileSystem(), CLUSTER_ID)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def connection(server: ControllerServer) -> Iterator[NodeConnection]:
    with NodeConnection("127.0.0.1", server.port, timeout_ms=60_000) as connection:
        yield connection


def join(connection: NodeConnection, broker_id: int = 0) -> int:
    response = connection.send(registration(broker_id), 4)
    assert response.error_code == 0
    epoch: int = response.broker_epoch
    beat = BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=epoch, want_fence=False
    )
    assert not connection.send(beat, 2).is_fenced
    return epoch


def test_api_versions_lists_the_table(connection: NodeConnection) -> None:
    response = connection.send(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    assert {k.api_key: (k.min_version, k.max_version) for k in response.api_keys} == {
        key: api.versions for key, api in LOCAL_TABLE.items()
    }
    assert [f.name for f in response.finalized_features] == [
        "eligible.leader.replicas.version",
        "group.version",
        "metadata.version",
        "share.version",
        "streams.version",
        "transaction.version",
    ]


def test_describe_cluster_names_the_cluster(connection: NodeConnection, server: ControllerServer) -> None:
    response = connection.send(DescribeClusterRequest(endpoint_type=2), 2)
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 100)
    assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [(100, "127.0.0.1", server.port)]
    response = connection.send(DescribeClusterRequest(endpoint_type=1), 2)
    assert ErrorCode(response.error_code) is ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_controllers_register(connection: NodeConnection) -> None:
    own = connection.send(DescribeClusterRequest(endpoint_type=2), 2).brokers[0]
    assert connection.send(controller_request(101), 0).error_code == 0
    brokers = connection.send(DescribeClusterRequest(endpoint_type=2), 2).brokers
    assert [(b.broker_id, b.host, b.port) for b in brokers] == [(100, own.host, own.port), (101, "h", 9)]


def test_brokers_register_and_topics_are_created(connection: NodeConnection) -> None:
    epoch = join(connection)
    response = connection.send(CreateTopicsRequest(topics=[topic("a", 2), topic("b c")]), 7)
    assert [t.error_code for t in response.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    response = connection.send(AllocateProducerIdsRequest(broker_id=0, broker_epoch=epoch), 0)
    assert (response.producer_id_start, response.producer_id_len) == (0, 1000)
    assert connection.send(UnregisterBrokerRequest(broker_id=0), 0).error_code == 0


def test_errors_of_whole_requests(connection: NodeConnection) -> None:
    beat = BrokerHeartbeatRequest(broker_id=5, broker_epoch=1)
    requests: list[tuple[Any, int, ErrorCode]] = [
        (beat, 2, ErrorCode.STALE_BROKER_EPOCH),
        (AlterPartitionRequest(broker_id=5), 3, ErrorCode.STALE_BROKER_EPOCH),
        (AllocateProducerIdsRequest(broker_id=5), 0, ErrorCode.STALE_BROKER_EPOCH),
        (UnregisterBrokerRequest(broker_id=5), 0, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (registration(1, cluster_id="x"), 4, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (registration(1, listeners=[]), 4, ErrorCode.INVALID_REGISTRATION),
        (ElectLeadersRequest(election_type=9, topic_partitions=[]), 2, ErrorCode.INVALID_REQUEST),
    ]
    for message, version, code in requests:
        assert ErrorCode(connection.send(message, version).error_code) is code


def test_every_version_is_answered(connection: NodeConnection) -> None:
    for message in (
        CreateTopicsRequest(topics=[topic("t")]),
        CreatePartitionsRequest(),
        AlterConfigsRequest(),
        ListPartitionReassignmentsRequest(topics=None),
    ):
        low, high = LOCAL_TABLE[message.API_KEY].versions
        for version in range(low, high + 1):
            assert connection.send(message, version) is not None


def test_a_value_that_no_record_can_hold_is_refused_and_the_next_request_served(connection: NodeConnection) -> None:
    """It ended the process; the broker that had forwarded the request sent it to the next one, too."""
    join(connection)
    assert connection.send(CreateTopicsRequest(topics=[topic("t")]), 7).topics[0].error_code == 0
    codes = []
    for first in (0, 4_000):
        value = ",".join(f"{n}:0" for n in range(first, first + 4_000))
        change = AlterableConfig(name="leader.replication.throttled.replicas", config_operation=2, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        response = connection.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        codes.append(response.responses[0].error_code)
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
    assert connection.send(CreateTopicsRequest(topics=[topic("u")]), 7).topics[0].error_code == 0


def test_a_request_too_large_for_its_kind_closes_its_connection_and_no_other(
    server: ControllerServer, connection: NodeConnection
) -> None:
    resources = [AlterConfigsResource(resource_type=2, resource_name="x" * 30_000, configs=[]) for _ in range(600)]
    with NodeConnection("127.0.0.1", server.port, timeout_ms=60_000) as other, pytest.raises(NodeConnectionError):
        other.send(IncrementalAlterConfigsRequest(resources=resources), 1)
    join(connection)


# -- envelopes


def forward(connection: NodeConnection, message: Any, version: int, **fields: Any) -> Any:
    """Send a request as a broker forwards it; the envelope's response."""
    header = RequestHeader(message.API_KEY, version, 77, "the client")
    values: dict[str, Any] = {
        "request_data": encode_request(header, message)[4:],
        "request_principal": encode_principal("User:alice"),
        "client_host_address": ipaddress.ip_address("10.1.2.3").packed,
    }
    return connection.send(EnvelopeRequest(**{**values, **fields}), 0)


def opened(envelope: Any, api_key: int, version: int) -> Any:
    """The response inside."""
    assert envelope.error_code == 0
    data = memoryview(envelope.response_data)
    correlation_id, offset = decode_response_header(data, api_key, version)
    assert correlation_id == 77
    return response_class(api_key).decode(data, version, offset)


@pytest.mark.parametrize("version", [2, 5, 7])
def test_a_forwarded_request_is_answered_inside(connection: NodeConnection, version: int) -> None:
    join(connection)
    message = CreateTopicsRequest(topics=[manual_topic("t", [[0]])])
    response = opened(forward(connection, message, version), 19, version)
    assert [(t.name, t.error_code) for t in response.topics] == [("t", 0)]


def test_errors_of_a_forwarded_request_are_inside(connection: NodeConnection) -> None:
    response = opened(forward(connection, UnregisterBrokerRequest(broker_id=4), 0), 64, 0)
    assert ErrorCode(response.error_code) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_broker_hears_outside_that_another_controller_is_active(
    server: ControllerServer, connection: NodeConnection
) -> None:
    server.controller.loop.call(lambda: server.controller.take_leader(LeaderAndEpoch(101, 9)))
    envelope = forward(connection, CreateTopicsRequest(topics=[topic("t")]), 7)
    assert ErrorCode(envelope.error_code) is ErrorCode.NOT_CONTROLLER
    assert ErrorCode(connection.send(registration(0), 4).error_code) is ErrorCode.NOT_CONTROLLER
    assert ErrorCode(connection.send(BrokerHeartbeatRequest(), 2).error_code) is ErrorCode.NOT_CONTROLLER
    assert ErrorCode(connection.send(AlterPartitionRequest(), 3).error_code) is ErrorCode.NOT_CONTROLLER
    assert ErrorCode(connection.send(AllocateProducerIdsRequest(), 0).error_code) is ErrorCode.NOT_CONTROLLER
    assert ErrorCode(connection.send(AssignReplicasToDirsRequest(), 0).error_code) is ErrorCode.NOT_CONTROLLER
    assert connection.send(DescribeClusterRequest(endpoint_type=2), 2).controller_id == 101


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"request_data": b"\x00\x13"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.INVALID_REQUEST),
        ({"client_host_address": b"123"}, ErrorCode.INVALID_REQUEST),
        ({"request_principal": b"\x00\x00\x7f"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\x00\x09"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ],
)
def test_envelopes_that_cannot_be_opened(connection: NodeConnection, fields: dict[str, Any], code: ErrorCode) -> None:
    envelope = forward(connection, UnregisterBrokerRequest(broker_id=4), 0, **fields)
    assert ErrorCode(envelope.error_code) is code


def test_not_everything_may_be_forwarded(connection: NodeConnection) -> None:
    envelope = forward(connection, BrokerHeartbeatRequest(broker_id=0), 0)
    assert ErrorCode(envelope.error_code) is ErrorCode.INVALID_REQUEST


# -- the process


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """main configures the root logger; give pytest's back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def properties(directory: Path, **more: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    lines = {
        "process.roles": "controller",
        "node.id": "100",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:0",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "log.dirs": str(directory / "data"),
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return file


def test_the_process_starts_logs_that_it_is_ready_and_stops(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "barnabas.controller.main", str(properties(tmp_path))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        lines = []
        for line in child.stderr:
            lines.append(line)
            if "is ready on port" in line:
                break
        child.send_signal(signal.SIGTERM)
        rest = child.stderr.read()
        assert child.wait(60) == 0, "".join(lines) + rest
    assert (tmp_path / "data" / "meta.properties").exists()
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("more", "override", "message"),
    [
        ({"node_id": "x"}, [], "node.id"),
        ({"controller_quorum_voters": "100@a:1,101@b:1,102@c:1"}, [], "is new and does not say which cluster it"),
        ({"controller_quorum_voters": "7@a:1,101@b:1"}, [], "the node id 100 must be included in the set of voters"),
        ({"listeners": "CONTROLLER://256.0.0.1:0"}, [], "cannot listen on 256.0.0.1:0"),
        ({}, ["--override", "nonsense"], "--override wants KEY=VALUE, not 'nonsense'"),
        ({"log_dirs": "/proc/nowhere"}, [], "cannot use /proc/nowhere"),
    ],
)
def test_an_operator_error_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, str], override: list[str], message: str
) -> None:
    file = properties(tmp_path, **more)
    assert main.main([str(file), *override], {}) == 1
    printed = capsys.readouterr().err.strip().splitlines()
    assert message in printed[-1]
    assert printed[-1].startswith("controller: ")
    assert not any("Traceback" in line for line in printed)


def test_a_missing_file_and_a_directory_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([str(tmp_path / "none")], {}) == 1
    assert "cannot read" in capsys.readouterr().err
    file = properties(tmp_path)
    from barnabas.common.disk.files import OsFileSystem

    os.makedirs(tmp_path / "data")
    lock = OsFileSystem().lock(str(tmp_path / "data" / ".lock"))
    assert main.main([str(file)], {}) == 1
    assert "is in use by another process" in capsys.readouterr().err
    lock.release()


def test_a_directory_of_another_cluster_or_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from barnabas.common.disk.files import OsFileSystem
    from barnabas.controller.metadata.metadata_directory import MetadataDirectory

    MetadataDirectory.open(OsFileSystem(), str(tmp_path / "data"), 100, "first").close()
    file = str(properties(tmp_path))
    assert main.main([file], {"CLUSTER_ID": "second"}) == 1
    assert "belongs to cluster 'first', not 'second'" in capsys.readouterr().err
    assert main.main([file, "--override", "node.id=7"], {}) == 1
    assert "belongs to node 100, but node.id is 7" in capsys.readouterr().err


def test_connections_end_with_the_server() -> None:
    config = make_config(barnabas_metrics_port="0")
    server = ControllerServer(config, SystemClock(), MemoryFileSystem(), CLUSTER_ID)
    server.start()
    connection = NodeConnection("127.0.0.1", server.port, timeout_ms=60_000)
    join(connection)
    server.stop()
    with pytest.raises(NodeConnectionError):
        connection.send(DescribeClusterRequest(endpoint_type=2), 1)
