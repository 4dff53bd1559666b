"""Metadata, DescribeCluster, DescribeTopicPartitions: what a broker tells of the cluster."""

from __future__ import annotations

import time

import pytest

from barnabas.broker.apis.k03_metadata import handle
from barnabas.broker.known_answers import BYTES_MAX, KEY_BYTES_MAX, KnownAnswers
from barnabas.broker.metadata_cache import MetadataSnapshot
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.support.broker_room import CLUSTER_ID, BrokerRoom, registration, state, topic_id


@pytest.fixture
def room():
    made = BrokerRoom()
    made.push({"t": [state(1, (1, 2)), state(9, (9, 2), isr=(9,))], "u": [state(2, (2,))] * 3})
    yield made
    made.close()


def ask(room, version, names=None, **about):
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    listener = about.pop("listener", "PLAINTEXT")
    return room.answer(MetadataRequest(topics=topics, **about), version, listener=listener)


def test_brokers_and_topics(room):
    response = ask(room, 12)
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


def test_a_broker_names_itself_as_controller_for_it_is_certainly_up(room):
    for _ in range(8):
        assert ask(room, 12).controller_id == room.answer(DescribeClusterRequest(endpoint_type=1), 1).controller_id == 1
    snapshot = room.cache.snapshot
    assert snapshot.controller_for_clients(7) in (1, 2, 3)  # one that is fenced names a live one
    assert MetadataSnapshot().controller_for_clients(7) == -1


@pytest.mark.parametrize(("version", "names", "count"), [(0, [], 2), (1, [], 0), (1, None, 2), (1, ["t"], 1)])
def test_which_topics_are_meant(room, version, names, count):
    assert len(ask(room, version, names).topics) == count


def test_v0_hides_replicas_that_are_gone(room):
    partition = ask(room, 0, ["t"]).topics[0].partitions[1]
    assert (partition.replica_nodes, partition.isr_nodes) == ([2], [])


def test_a_listener_that_the_leader_lacks(room):
    for version, error in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        response = ask(room, version, ["t"], listener="OTHER")
        assert (response.brokers, response.topics[0].partitions[0].error_code) == ([], error)


def told(room, version=12, names=("t",), **about):
    """What the broker keeps of its answer to a request that was received."""
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    listener = about.pop("listener", "PLAINTEXT")
    message = MetadataRequest(topics=topics, **about)
    request = room.request(message, version, listener=listener)
    request.buffer = memoryview(b"head" + message.encode(version))
    request.header_bytes = 4
    reply = handle(room.services, request)
    answers = room.services.metadata_cache.snapshot.answers._known.values()
    return [known for known in answers if known.message is reply.message and known.encoded is reply.encoded]


def test_an_answer_is_kept_with_its_picture_and_encoded_once(room):
    (known,) = told(room)
    assert known.encoded == known.message.encode(12)
    assert sorted(known.error_codes) == [0, 0, 0, ErrorCode.LEADER_NOT_AVAILABLE]
    again = [known.encoded for _ in range(20) for known in told(room)]
    assert len(again) == 20
    assert len({id(encoded) for encoded in [known.encoded, *again]}) <= 3, "one for each broker named as controller"


@pytest.mark.parametrize(
    "about", [{"version": 9}, {"names": ("u",)}, {"names": None}, {"listener": "OTHER"},
              {"include_topic_authorized_operations": True}]
)  # fmt: skip
def test_another_question_has_another_answer(room, about):
    (known,) = told(room)
    (other,) = told(room, **about)
    assert other.encoded != known.encoded


def test_a_push_makes_all_answers_anew(room):
    (known,) = told(room)
    room.push({"t": [state(1, (1, 2)), state(2, (9, 2), isr=(2,))]})
    (other,) = told(room)
    assert [p.leader_id for p in known.message.topics[0].partitions] == [1, -1]
    assert [p.leader_id for p in other.message.topics[0].partitions] == [1, 2]


def test_what_is_missing_is_asked_anew_each_time(room):
    assert told(room, names=("t", "x")) == []
    assert told(room, names=("t", "?")) == []


def test_what_is_kept_is_bounded(room):
    assert told(room, names=tuple(f"a-long-name-of-a-topic-{number}" for number in range(100))) == []
    answers = KnownAnswers()
    (known,) = told(room)
    for number in range(10_000):
        answers.keep(number, known.message, 12)
    assert 0 < len(answers._known) * KEY_BYTES_MAX < BYTES_MAX


def test_topics_by_id(room):
    topics = [MetadataRequestTopic(topic_id=id_, name=None) for id_ in (topic_id("u"), topic_id("x"))]
    known, unknown = room.answer(MetadataRequest(topics=topics), 12).topics
    assert (known.name, len(known.partitions)) == ("u", 3)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    with pytest.raises(ApiError) as refused:
        room.answer(MetadataRequest(topics=topics), 11)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_unknown_topics_are_created_once_if_allowed(room):
    response = ask(room, 9, ["new", "bad name"])
    assert [(t.name, ErrorCode(t.error_code)) for t in response.topics] == [
        ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    ask(room, 9, ["new"])
    assert len(room.channel.sent) == 1  # while it is asked for, nobody asks again
    room.channel.sent[0][1](None)
    ask(room, 9, ["new"])
    assert len(room.channel.sent) == 2
    ask(room, 9, ["other"], allow_auto_topic_creation=False)
    assert len(room.channel.sent) == 2


def test_many_unknown_topics_are_no_quadratic_work(room):
    names = [f"n{number}" for number in range(60_000)]
    started_s = time.thread_time()
    answer = ask(room, 9, names, allow_auto_topic_creation=False)
    assert time.thread_time() - started_s < 10  # compared with each other: a minute
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_authorized_operations_only_when_asked_for(room):
    told = ask(room, 9, ["t"], include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    assert (told.topics[0].topic_authorized_operations, told.cluster_authorized_operations) == (3576, 8096)
    silent = ask(room, 9, ["t"])
    assert silent.topics[0].topic_authorized_operations == silent.cluster_authorized_operations == -(1 << 31)


def test_describe_cluster_tells_fenced_brokers_when_asked_to(room):
    told = [registration(1), registration(2), registration(4, fenced=True)]
    room.answer(room.update_metadata({}, brokers=(1, 2), registrations=told), 8)

    def described(version, **asked):
        answer = room.answer(DescribeClusterRequest(**asked), version)
        return [(b.broker_id, b.host, b.rack, b.is_fenced) for b in answer.brokers]

    alive = [(1, "b1", "r1", False), (2, "b2", "r2", False)]
    assert described(2) == alive
    assert described(2, include_fenced_brokers=True) == [*alive, (4, "b4", "r4", True)]
    room.answer(room.update_metadata({}, brokers=(1, 2), registrations=told[:2]), 8)
    assert described(2, include_fenced_brokers=True) == alive  # 4 was unregistered


def test_describe_cluster(room):
    told = room.answer(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert (told.cluster_id, [b.broker_id for b in told.brokers]) == (CLUSTER_ID, [1, 2, 3])
    assert told.cluster_authorized_operations == 8096
    for type_, error in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        assert room.answer(DescribeClusterRequest(endpoint_type=type_), 1).error_code == error


def pages(room, **about):
    cursor = None
    while True:
        told = room.answer(DescribeTopicPartitionsRequest(cursor=cursor, **about), 0)
        yield [(t.name, [p.partition_index for p in t.partitions]) for t in told.topics]
        cursor = told.next_cursor
        if cursor is None:
            return


def test_describe_topic_partitions_in_pages(room):
    asked = [TopicRequest(name="u"), TopicRequest(name="t")]
    assert list(pages(room, topics=asked, response_partition_limit=2)) == [
        [("t", [0, 1])],
        [("u", [0, 1])],
        [("u", [2])],
    ]
    assert list(pages(room)) == [[("t", [0, 1]), ("u", [0, 1, 2])]]
    missing = room.answer(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="x")]), 0).topics[0]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "cursor", [Cursor(topic_name="zz", partition_index=0), Cursor(topic_name="t", partition_index=-1)]
)
def test_a_cursor_outside_the_list_is_refused(room, cursor):
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=cursor)
    with pytest.raises(ApiError) as refused:
        room.answer(request, 0)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_deleted_topic_is_gone_and_a_late_deletion_spares_its_successor(room):
    room.answer(room.update_metadata({"u": [state(-2, (2,))] * 3}, type_=1), 8)
    assert "u" not in room.cache.snapshot.topics
    room.push({"u": [state(2, (2,))]}, incarnation=1)
    room.answer(room.update_metadata({"u": [state(-2, (2,))] * 3}, type_=1), 8)
    assert room.cache.snapshot.topic_id("u") == topic_id("u", 1)
