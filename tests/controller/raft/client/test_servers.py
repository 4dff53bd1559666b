"""Three replicas over sockets: they elect, replicate, fail over, and keep everything (controller/apis/k01_fetch.py,
controller/apis/k52_vote.py, controller/apis/k53_begin_quorum_epoch.py, controller/apis/k54_end_quorum_epoch.py,
controller/apis/k55_describe_quorum.py, controller/apis/k59_fetch_snapshot.py, controller/apis/k80_add_raft_voter.py,
controller/apis/k81_remove_raft_voter.py, controller/apis/k82_update_raft_voter.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from barnabas.broker.requests.api import nodes_only
from barnabas.client.connection import NodeConnection
from barnabas.common.ids import METADATA_TOPIC_ID, ZERO_UUID
from barnabas.controller.apis.table import TABLE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages import k55_describe_quorum as describe
from barnabas.protocol.messages.k01_fetch import FetchRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k52_vote import VoteRequest
from barnabas.protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.protocol.messages.k54_end_quorum_epoch import EndQuorumEpochRequest
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterRequest
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.messages.k82_update_raft_voter import UpdateRaftVoterRequest
from tests.controller.raft.client.rig import config_record
from tests.controller.raft.client.servers import HOST, WAIT_MS, RaftServers, raft_servers
from tests.support.waiting import eventually

TOPIC = "__cluster_metadata"


def all_have(servers: RaftServers, *names: str) -> None:
    eventually(
        "all records", lambda: all(node.listened.names == list(names) for node in servers.running.values()), WAIT_MS
    )


def test_they_elect_replicate_fail_over_and_keep_everything(tmp_path: Path) -> None:
    with raft_servers(tmp_path) as servers:
        servers.append("a")
        all_have(servers, "a")
        first = servers.leader().id
        servers.stop(first)
        servers.append("b")
        leader = servers.leader()
        end, epoch = leader.raft.high_watermark, leader.raft.leader_and_epoch.epoch
        assert leader.raft.create_snapshot(end, map(config_record, "ab"), epoch) is not None
        servers.append("c")
        servers.start(first)
        all_have(servers, "a", "b", "c")
        for node_id in servers.ports:
            servers.stop(node_id)
        for node_id in servers.ports:
            servers.start(node_id)
        servers.append("d")
        all_have(servers, "a", "b", "c", "d")


def test_the_quorum_is_described(tmp_path: Path) -> None:
    with raft_servers(tmp_path) as servers:
        servers.append("a")
        leader = servers.leader()
        request = describe.DescribeQuorumRequest(
            topics=[
                describe.RequestTopicData(
                    topic_name=TOPIC, partitions=[describe.RequestPartitionData(partition_index=0)]
                )
            ]
        )
        with NodeConnection(HOST, servers.ports[leader.id]) as connection:
            (partition,) = connection.send(request, 2).topics[0].partitions
            assert partition.leader_id == leader.id
            assert {voter.replica_id for voter in partition.current_voters} == {1, 2, 3}
            assert all(
                voter.last_caught_up_timestamp > 0
                for voter in partition.current_voters
                if voter.replica_id == leader.id
            )
            static = connection.send(RemoveRaftVoterRequest(voter_id=1, cluster_id=None), 0)
            assert static.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert "static" in static.error_message
            for version in (0, 1):  # they have neither directories nor addresses
                (partition,) = connection.send(request, version).topics[0].partitions
                assert len(partition.current_voters) == 3
            request.topics[0].topic_name = "other"
            (partition,) = connection.send(request, 2).topics[0].partitions
            assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_that_forwards_to_another_controller_than_the_leader_is_told_to_try_the_next(tmp_path: Path) -> None:
    """Its connection is lost now and then, and it cannot know from a NOT_LEADER inside the envelope whom to ask."""
    partitions = [describe.RequestPartitionData(partition_index=0)]
    described = describe.DescribeQuorumRequest(
        topics=[describe.RequestTopicData(topic_name=TOPIC, partitions=partitions)]
    )
    with raft_servers(tmp_path) as servers:
        leader = servers.leader()
        for message in (described, AddRaftVoterRequest(cluster_id=None), RemoveRaftVoterRequest(cluster_id=None)):
            header = RequestHeader(message.API_KEY, 0, 7, "c")
            frame = bytes(encode_request(header, message))[4:]
            envelope = EnvelopeRequest(request_data=frame, request_principal=None, client_host_address=bytes(4))
            for node_id, port in servers.ports.items():
                with NodeConnection(HOST, port) as connection:
                    expected = ErrorCode.NONE if node_id == leader.id else ErrorCode.NOT_CONTROLLER
                    assert connection.send(envelope, 0).error_code == expected


def test_every_version_of_every_request_is_answered(tmp_path: Path) -> None:
    with raft_servers(tmp_path, 1) as servers:
        servers.leader()
        with NodeConnection(HOST, servers.ports[1]) as connection:
            for cls in (
                *(FetchRequest, VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchSnapshotRequest),
                *(AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest),
            ):
                for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
                    response = connection.send(cls(), version)
                    assert response.error_code != ErrorCode.UNKNOWN_SERVER_ERROR, (cls, version)
            features = connection.send(
                ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4
            ).supported_features
            assert [(f.min_version, f.max_version) for f in features if f.name == "kraft.version"] == [(0, 1)]


def _one_partition(cls: type[Any], **request: Any) -> Any:
    """A request for the metadata partition; what else it says is the default."""
    fields = {field.name: field for field in cls.FIELDS}
    topic_class = fields["topics"].element
    name = next(field.name for field in topic_class.FIELDS if field.name in ("topic_name", "topic", "name"))
    partition_class = next(field.element for field in topic_class.FIELDS if field.name == "partitions")
    named = {"topic_id": METADATA_TOPIC_ID} if cls is FetchRequest else {}
    return cls(topics=[topic_class(**{name: TOPIC}, **named, partitions=[partition_class()])], **request)


def test_every_version_is_told_who_leads(tmp_path: Path) -> None:
    """The address of the leader is in the newer versions only; the older ones would not be encoded with it."""
    with raft_servers(tmp_path, 1) as servers:
        epoch = servers.leader().raft.leader_and_epoch.epoch
        with NodeConnection(HOST, servers.ports[1]) as connection:
            for cls in (
                *(FetchRequest, VoteRequest, BeginQuorumEpochRequest),
                *(EndQuorumEpochRequest, FetchSnapshotRequest),
            ):
                first = 12 if cls is FetchRequest else cls.MIN_VERSION
                for version in range(first, cls.MAX_VERSION + 1):
                    message = _one_partition(cls)
                    if version > 12 and cls is FetchRequest:
                        message.topics[0].topic = ""
                    elif cls is FetchRequest:
                        message.topics[0].topic_id = ZERO_UUID
                    response = connection.send(message, version)
                    assert response.error_code == ErrorCode.NONE, (cls, version)
                    topics = response.responses if cls is FetchRequest else response.topics
                    partition = topics[0].partitions[0]
                    leader = getattr(partition, "current_leader", partition)
                    assert (leader.leader_id, leader.leader_epoch) == (1, epoch), (cls, version)


def test_clients_do_not_take_part() -> None:
    """Whoever fetches the metadata log reads the credentials in it."""
    for cls in (FetchRequest, FetchSnapshotRequest, VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest):
        assert TABLE[cls.API_KEY].nodes_only is nodes_only
