"""DescribeQuorum and the changes of voters, of a single controller; several ones are in raft/client/test_servers.py.

Covers `controller/apis/k55_describe_quorum.py`, `controller/apis/k80_add_raft_voter.py` and
`controller/apis/k81_remove_raft_voter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k19_create_topics import CreateTopicsRequest
from barnabas.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from barnabas.protocol.messages.k56_alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.k73_assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterRequest
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.push_tags import active_since_of, set_cluster_id
from tests.controller.decisions.test_registration import controller_request
from tests.controller.rig import CLUSTER_ID, manual_topic
from tests.controller.test_any_request import SIZE_PREFIX, Asker, contents

VERSIONS = [0, 1, 2]


@pytest.fixture
def asker() -> Asker:
    return Asker(0)


def described(topic: str = "__cluster_metadata", partition: int = 0) -> DescribeQuorumRequest:
    partitions = [RequestPartitionData(partition_index=partition)]
    return DescribeQuorumRequest(topics=[RequestTopicData(topic_name=topic, partitions=partitions)])


def ask(asker: Asker, message: Any, version: int) -> Any:
    return asker.ask(RequestHeader(message.API_KEY, version, 7, "c"), message)


def forward(asker: Asker, message: Any, version: int) -> Any:
    """Ask as a broker does for a client."""
    frame = encode_request(RequestHeader(message.API_KEY, version, 7, "c"), message)[SIZE_PREFIX:]
    envelope = EnvelopeRequest(request_data=frame, request_principal=None, client_host_address=bytes(4))
    response = asker.ask(RequestHeader(58, 0, 1, "0"), envelope)
    assert response.error_code == ErrorCode.NONE
    _, offset = decode_response_header(response.response_data, message.API_KEY, version)
    return response_class(message.API_KEY).decode(response.response_data, version, offset)


def of_another_cluster(asker: Asker) -> Iterator[tuple[Any, int]]:
    """Requests of a node that would be carried out here, and how they are refused."""
    broker = asker.rig.image.brokers[0]
    frame = encode_request(RequestHeader(19, 7, 7, "c"), CreateTopicsRequest(topics=[manual_topic("foreign", [[0]])]))
    yield (
        EnvelopeRequest(request_data=frame[SIZE_PREFIX:], request_principal=None, client_host_address=bytes(4)),
        ErrorCode.NOT_CONTROLLER,
    )
    yield AllocateProducerIdsRequest(broker_id=0, broker_epoch=broker.epoch), ErrorCode.NOT_CONTROLLER
    yield AlterPartitionRequest(broker_id=0, broker_epoch=broker.epoch), ErrorCode.NOT_CONTROLLER
    yield AssignReplicasToDirsRequest(broker_id=0, broker_epoch=broker.epoch), ErrorCode.NOT_CONTROLLER
    yield controller_request(), ErrorCode.NOT_CONTROLLER
    fencing = BrokerHeartbeatRequest(broker_id=0, broker_epoch=broker.epoch, want_fence=True)
    yield fencing, ErrorCode.STALE_BROKER_EPOCH


def test_a_node_of_another_cluster_is_refused(asker: Asker) -> None:
    """An address of its controllers has passed to this one, and ids and epochs of small clusters are the same."""
    before = contents(asker.rig.image)
    for message, refusal in of_another_cluster(asker):
        set_cluster_id(message, "another")
        assert ask(asker, message, message.MAX_VERSION).error_code == refusal, type(message)
    assert contents(asker.rig.image) == before
    for message, _ in of_another_cluster(asker):
        set_cluster_id(message, CLUSTER_ID)
        assert ask(asker, message, message.MAX_VERSION).error_code == ErrorCode.NONE, type(message)
    assert "foreign" in asker.rig.image.topic_ids


@pytest.mark.parametrize("way", [ask, forward])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_single_controller_is_a_quorum_of_one(asker: Asker, way: Any, version: int) -> None:
    asker.rig.push()
    response = way(asker, described(), version)
    ((partition,),) = [topic.partitions for topic in response.topics]
    image = asker.rig.image
    assert (response.error_code, partition.error_code) == (0, 0)
    assert (partition.leader_id, partition.leader_epoch) == (100, asker.rig.controller.epoch)
    assert partition.high_watermark == image.offset + 1
    assert [(voter.replica_id, voter.log_end_offset) for voter in partition.current_voters] == [(100, image.offset + 1)]
    assert [(broker.replica_id, broker.log_end_offset) for broker in partition.observers] == [
        (broker_id, image.offset + 1) for broker_id in image.brokers
    ]
    assert [broker.replica_directory_id for broker in partition.observers] == [
        broker.log_dirs[0] if version == 2 else ZERO_UUID for broker in image.brokers.values()
    ]
    assert active_since_of(response) == asker.rig.controller.active_since_ms
    assert [node.node_id for node in response.nodes] == ([100] if version == 2 else [])
    if version:
        assert partition.current_voters[0].last_fetch_timestamp == asker.rig.clock.wall_ms()


@pytest.mark.parametrize("asked", [described("t"), described(partition=1)])
def test_another_topic_has_no_quorum(asker: Asker, asked: DescribeQuorumRequest) -> None:
    ((partition,),) = [topic.partitions for topic in ask(asker, asked, 2).topics]
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("way", [ask, forward])
@pytest.mark.parametrize("change", [AddRaftVoterRequest, RemoveRaftVoterRequest])
def test_the_voters_of_a_single_controller_are_static(asker: Asker, way: Any, change: Any) -> None:
    for cluster_id in (None, CLUSTER_ID):
        response = way(asker, change(cluster_id=cluster_id, voter_id=101), 0)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "controller.quorum.voters" in response.error_message
    response = way(asker, change(cluster_id="another", voter_id=101), 0)
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
