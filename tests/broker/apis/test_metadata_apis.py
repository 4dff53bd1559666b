"""Metadata, DescribeCluster and DescribeTopicPartitions: how a broker describes the cluster.

Covers `apis/k03_metadata.py`, `apis/k60_describe_cluster.py`, `apis/k75_describe_topic_partitions.py`,
`apis/authorized.py` and `requests/cached_responses.py`.
"""

from __future__ import annotations

import time

import pytest

from barnabas.broker.apis.k03_metadata import handle
from barnabas.broker.metadata.metadata_cache import MetadataSnapshot
from barnabas.broker.requests.cached_responses import BYTES_MAX, KEY_BYTES_MAX, CachedResponses
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.support.broker.broker_rig import CLUSTER_ID, BrokerRig, registration, state, topic_id


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"t": [state(1, (1, 2)), state(9, (9, 2), isr=(9,))], "u": [state(2, (2,))] * 3})
    yield made
    made.close()


def ask(rig, version, names=None, **about):
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    listener = about.pop("listener", "PLAINTEXT")
    return rig.answer(MetadataRequest(topics=topics, **about), version, listener=listener)


def test_brokers_and_topics(rig):
    response = ask(rig, 12)
    assert [(b.node_id, b.host, b.port, b.rack) for b in response.brokers] == [
        (i, f"b{i}", 9092, f"r{i}") for i in (1, 2, 3)
    ]
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 1)
    topic = next(t for t in response.topics if t.name == "t")
    assert (topic.topic_id, topic.is_internal) == (topic_id("t"), False)
    led, leaderless = topic.partitions
    assert (led.error_code, led.leader_id, led.replica_nodes, led.offline_replicas) == (0, 1, [1, 2], [])
    assert (leaderless.error_code, leaderless.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (leaderless.replica_nodes, leaderless.offline_replicas) == ([9, 2], [9])


def test_a_replica_in_a_failed_log_directory_is_offline_though_its_broker_is_live(rig):
    rig.answer(rig.update_metadata({"t": [state(1, (1, 2), offline=[2])]}), 8)
    assert ask(rig, 12, ["t"]).topics[0].partitions[0].offline_replicas == [2]
    described = rig.answer(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
    assert described.topics[0].partitions[0].offline_replicas == [2]


def test_while_no_broker_is_live_those_that_were_last_are_listed(rig):
    for _ in range(2):
        push = rig.update_metadata({"t": [state(-1, (1, 2), leader_epoch=1, partition_epoch=1)]})
        push.live_brokers = []
        rig.answer(push, 8)
        response = ask(rig, 12, ["t"])
        assert [broker.node_id for broker in response.brokers] == [1, 2, 3]
        assert (response.controller_id, response.topics[0].partitions[0].leader_id) == (-1, -1)
        assert rig.cache.snapshot.nodes("PLAINTEXT") == []
    rig.push({})
    assert rig.cache.snapshot.last_live == {}
    assert len(ask(rig, 12).brokers) == 3


def test_a_broker_names_itself_as_controller_since_it_is_alive(rig):
    for _ in range(8):
        assert ask(rig, 12).controller_id == rig.answer(DescribeClusterRequest(endpoint_type=1), 1).controller_id == 1
    snapshot = rig.cache.snapshot
    assert snapshot.controller_for_clients(7) in (1, 2, 3)  # a fenced broker names a live one
    assert MetadataSnapshot().controller_for_clients(7) == -1


@pytest.mark.parametrize(("version", "names", "count"), [(0, [], 2), (1, [], 0), (1, None, 2), (1, ["t"], 1)])
def test_requested_topics_by_version(rig, version, names, count):
    assert len(ask(rig, version, names).topics) == count


def test_v0_hides_missing_replicas(rig):
    partition = ask(rig, 0, ["t"]).topics[0].partitions[1]
    assert (partition.replica_nodes, partition.isr_nodes) == ([2], [])


def test_a_listener_that_the_leader_lacks(rig):
    for version, error in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        response = ask(rig, version, ["t"], listener="OTHER")
        assert (response.brokers, response.topics[0].partitions[0].error_code) == ([], error)


def cached(rig, version=12, names=("t",), **about):
    """Return the cache entry of a request that came in a frame, if there is one."""
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    listener = about.pop("listener", "PLAINTEXT")
    message = MetadataRequest(topics=topics, **about)
    request = rig.request(message, version, listener=listener)
    request.buffer = memoryview(b"head" + message.encode(version))
    request.header_bytes = 4
    reply = handle(rig.services, request)
    answers = rig.services.metadata_cache.snapshot.responses._by_key.values()
    return [known for known in answers if known.message is reply.message and known.encoded is reply.encoded]


def test_a_response_is_cached_with_its_snapshot_and_encoded_once(rig):
    (known,) = cached(rig)
    assert known.encoded == known.message.encode(12)
    assert sorted(known.error_codes) == [0, 0, 0, ErrorCode.LEADER_NOT_AVAILABLE]
    again = [entry.encoded for _ in range(20) for entry in cached(rig)]
    assert len(again) == 20
    assert len({id(encoded) for encoded in [known.encoded, *again]}) <= 3, "one for each broker named as controller"


@pytest.mark.parametrize(
    "about", [{"version": 9}, {"names": ("u",)}, {"names": None}, {"listener": "OTHER"},
              {"include_topic_authorized_operations": True}]
)  # fmt: skip
def test_another_query_has_another_response(rig, about):
    (known,) = cached(rig)
    (other,) = cached(rig, **about)
    assert other.encoded != known.encoded


def test_a_push_drops_all_cached_responses(rig):
    (known,) = cached(rig)
    rig.push({"t": [state(1, (1, 2)), state(2, (9, 2), isr=(2,))]})
    (other,) = cached(rig)
    assert [p.leader_id for p in known.message.topics[0].partitions] == [1, -1]
    assert [p.leader_id for p in other.message.topics[0].partitions] == [1, 2]


def test_responses_with_missing_topics_are_not_cached(rig):
    assert cached(rig, names=("t", "x")) == []
    assert cached(rig, names=("t", "?")) == []


def test_the_cache_is_bounded(rig):
    assert cached(rig, names=tuple(f"a-long-name-of-a-topic-{number}" for number in range(100))) == []
    responses = CachedResponses()
    (known,) = cached(rig)
    for number in range(10_000):
        responses.put(number, known.message, 12)
    assert 0 < len(responses._by_key) * KEY_BYTES_MAX < BYTES_MAX


def test_topics_by_id(rig):
    topics = [MetadataRequestTopic(topic_id=id_, name=None) for id_ in (topic_id("u"), topic_id("x"))]
    known, unknown = rig.answer(MetadataRequest(topics=topics), 12).topics
    assert (known.name, len(known.partitions)) == ("u", 3)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    with pytest.raises(ApiError) as refused:
        rig.answer(MetadataRequest(topics=topics), 11)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_unknown_topics_are_created_once_if_allowed(rig):
    response = ask(rig, 9, ["new", "bad name"])
    assert [(t.name, ErrorCode(t.error_code)) for t in response.topics] == [
        ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    ask(rig, 9, ["new"])
    assert len(rig.channel.sent) == 1  # one request is in flight at a time
    rig.channel.sent[0][1](None)
    ask(rig, 9, ["new"])
    assert len(rig.channel.sent) == 2
    ask(rig, 9, ["other"], allow_auto_topic_creation=False)
    assert len(rig.channel.sent) == 2


def test_many_unknown_topics_take_no_quadratic_time(rig):
    names = [f"n{number}" for number in range(60_000)]
    started_s = time.thread_time()
    answer = ask(rig, 9, names, allow_auto_topic_creation=False)
    assert time.thread_time() - started_s < 10  # quadratic: a minute
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_authorized_operations_only_on_request(rig):
    response = ask(rig, 9, ["t"], include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    assert (response.topics[0].topic_authorized_operations, response.cluster_authorized_operations) == (3576, 8096)
    missing = ask(rig, 9, ["new"], allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    assert missing.topics[0].topic_authorized_operations == 3576
    silent = ask(rig, 9, ["t"])
    assert silent.topics[0].topic_authorized_operations == silent.cluster_authorized_operations == -(1 << 31)


def test_describe_cluster_lists_fenced_brokers_on_request(rig):
    registrations = [registration(1), registration(2), registration(4, fenced=True)]
    rig.answer(rig.update_metadata({}, brokers=(1, 2), registrations=registrations), 8)

    def described(version, **asked):
        answer = rig.answer(DescribeClusterRequest(**asked), version)
        return [(b.broker_id, b.host, b.rack, b.is_fenced) for b in answer.brokers]

    alive = [(1, "b1", "r1", False), (2, "b2", "r2", False)]
    assert described(2) == alive
    assert described(2, include_fenced_brokers=True) == [*alive, (4, "b4", "r4", True)]
    rig.answer(rig.update_metadata({}, brokers=(1, 2), registrations=registrations[:2]), 8)
    assert described(2, include_fenced_brokers=True) == alive  # 4 was unregistered


def test_describe_cluster(rig):
    response = rig.answer(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert (response.cluster_id, [b.broker_id for b in response.brokers]) == (CLUSTER_ID, [1, 2, 3])
    assert response.cluster_authorized_operations == 8096
    for type_, error in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        assert rig.answer(DescribeClusterRequest(endpoint_type=type_), 1).error_code == error


def pages(rig, **about):
    cursor = None
    while True:
        response = rig.answer(DescribeTopicPartitionsRequest(cursor=cursor, **about), 0)
        yield [(t.name, [p.partition_index for p in t.partitions]) for t in response.topics]
        cursor = response.next_cursor
        if cursor is None:
            return


def test_describe_topic_partitions_in_pages(rig):
    asked = [TopicRequest(name="u"), TopicRequest(name="t")]
    assert list(pages(rig, topics=asked, response_partition_limit=2)) == [
        [("t", [0, 1])],
        [("u", [0, 1])],
        [("u", [2])],
    ]
    assert list(pages(rig)) == [[("t", [0, 1]), ("u", [0, 1, 2])]]
    missing = rig.answer(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="x")]), 0).topics[0]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "cursor", [Cursor(topic_name="zz", partition_index=0), Cursor(topic_name="t", partition_index=-1)]
)
def test_a_cursor_outside_the_list_is_refused(rig, cursor):
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=cursor)
    with pytest.raises(ApiError) as refused:
        rig.answer(request, 0)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_deleted_topic_is_gone_and_a_late_deletion_spares_its_successor(rig):
    rig.answer(rig.update_metadata({"u": [state(-2, (2,))] * 3}, type_=1), 8)
    assert "u" not in rig.cache.snapshot.topics
    rig.push({"u": [state(2, (2,))]}, incarnation=1)
    rig.answer(rig.update_metadata({"u": [state(-2, (2,))] * 3}, type_=1), 8)
    assert rig.cache.snapshot.topic_id("u") == topic_id("u", 1)
