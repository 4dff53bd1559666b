"""The questions to both brokers, in their order, and the preparation of a fresh broker.

A question has a name and returns responses by version. A question that changes data uses its own topic, so that one
different response does not change the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.schema import Request
from tests.compare import (
    batches,
    consumer_group_questions,
    group_life_questions,
    group_questions,
    share_group_questions,
    streams_group_questions,
)
from tests.compare.conversation import AnswersByVersion, Conversation
from tests.support.waiting import eventually
from tests.support.wire import request_header

TOPIC = "compared"
UNKNOWN_ID = bytes(range(16))
METADATA_VERSION, CREATE_TOPICS_VERSION, PRODUCE_VERSION = 12, 7, 9
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
ONE_MORE_THAN_KNOWN = 99
TIMEOUT_MS = 10_000
Question = Callable[[Conversation], AnswersByVersion]


def answers(port: int) -> dict[str, AnswersByVersion]:
    """Prepare an unused broker, send it all questions, and return its responses by question."""
    conversation = Conversation(port)
    topic_id = _create_topic(conversation, TOPIC, partitions=2)
    for number in range(3):
        timestamp_ms = batches.FIRST_TIMESTAMP_MS + 10_000 * number
        batch = batches.build_batch(batches.records(timestamp_ms=timestamp_ms))
        assert _produced(conversation, _produce(TOPIC, batch))
    producer_id = InitProducerIdRequest(transactional_id=None)
    eventually("the broker has producer ids", lambda: conversation.ask(producer_id, 4).error_code == ErrorCode.NONE)
    return {name: question(conversation) for name, question in _questions(topic_id)}


def advertised(port: int) -> dict[str, str]:
    """Return the versions that the broker's ApiVersions lists, by API key."""
    response = Conversation(port).ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    return {str(row.api_key): f"{row.min_version}-{row.max_version}" for row in response.api_keys}


def _create_topic(conversation: Conversation, name: str, partitions: int = 1, **configs: str) -> bytes:
    """Create a topic, wait until the broker leads it, and return its id."""
    rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)
    (created,) = conversation.ask(CreateTopicsRequest(topics=[topic]), CREATE_TOPICS_VERSION).topics
    assert created.error_code == 0, created
    topic_id: bytes = created.topic_id
    conversation.topic_ids[topic_id] = f"id of {name}"
    latest = ListOffsetsRequest(replica_id=-1, topics=[_list_offsets_topic(name, 0, -1)])
    eventually(f"{name} has a leader", lambda: conversation.ask(latest, 4).topics[0].partitions[0].error_code == 0)
    return topic_id


def _produced(conversation: Conversation, request: ProduceRequest) -> bool:
    response = conversation.ask(request, PRODUCE_VERSION)
    return bool(response.responses[0].partition_responses[0].error_code == ErrorCode.NONE)


def _questions(topic_id: bytes) -> Iterator[tuple[str, Question]]:
    for name, request in _requests(topic_id):
        yield name, lambda conversation, request=request: conversation.ask_in_every_version(request)
    yield from _produce_questions()
    yield from _sequence_questions()
    yield from _raw_questions()
    yield from group_questions.questions(TOPIC)
    yield from group_life_questions.questions(TOPIC)
    yield from consumer_group_questions.questions(TOPIC, topic_id)
    yield from share_group_questions.questions(TOPIC, topic_id)
    yield from streams_group_questions.questions(TOPIC, topic_id)


def _requests(topic_id: bytes) -> Iterator[tuple[str, Request]]:
    """Requests without an effect on other questions."""
    yield from _cluster_requests()
    yield from _metadata_requests(topic_id)
    yield from _list_offsets_requests()
    yield from _fetch_requests(topic_id)
    yield from _topic_requests()
    yield from _config_requests()


def _cluster_requests() -> Iterator[tuple[str, Request]]:
    known = {"client_software_name": "compare", "client_software_version": "1.0"}
    yield "ApiVersions", ApiVersionsRequest(**known)
    yield (
        "ApiVersions of a client with an illegal name",
        ApiVersionsRequest(client_software_name="no spaces", client_software_version="1.0"),
    )
    yield "DescribeCluster", DescribeClusterRequest()
    yield (
        "DescribeCluster with authorized operations",
        DescribeClusterRequest(include_cluster_authorized_operations=True),
    )
    yield "DescribeCluster of the controllers", DescribeClusterRequest(endpoint_type=2)
    yield "DescribeCluster of no endpoint", DescribeClusterRequest(endpoint_type=9)
    yield "InitProducerId", InitProducerIdRequest(transactional_id=None)
    yield "InitProducerId of an empty transactional id", InitProducerIdRequest(transactional_id="")
    yield "InitProducerId with an epoch but no id", InitProducerIdRequest(transactional_id=None, producer_epoch=3)


def _metadata_requests(topic_id: bytes) -> Iterator[tuple[str, Request]]:
    def metadata(name: str | None, of_id: bytes = ZERO_UUID, **fields: bool) -> MetadataRequest:
        topics = [MetadataRequestTopic(name=name, topic_id=of_id)]
        return MetadataRequest(topics=topics, **fields)

    never = {"allow_auto_topic_creation": False}
    yield "Metadata", metadata(TOPIC)
    yield "Metadata by id", metadata(None, topic_id)
    yield "Metadata with authorized operations", metadata(TOPIC, include_topic_authorized_operations=True)
    yield "Metadata of an unknown topic", metadata("unknown", **never)
    yield "Metadata of an unknown id", metadata(None, UNKNOWN_ID, **never)
    yield "Metadata of an illegal name", metadata("no spaces", **never)
    yield "Metadata of an illegal name to be created", metadata("no spaces")
    yield "Metadata of an empty name", metadata("", **never)
    yield "Metadata of a name and an id", metadata(TOPIC, topic_id)
    yield "Metadata of no topic", MetadataRequest(topics=[], **never)
    for name in (TOPIC, "unknown", "no spaces"):
        yield f"DescribeTopicPartitions of {name}", DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])


def _list_offsets_topic(name: str, partition: int, timestamp: int, leader_epoch: int = -1) -> ListOffsetsTopic:
    row = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch)
    return ListOffsetsTopic(name=name, partitions=[row])


def _list_offsets_requests() -> Iterator[tuple[str, Request]]:
    first = batches.FIRST_TIMESTAMP_MS
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, first, first + 1, first + 11_000, first + 1_000_000):
        request = ListOffsetsRequest(replica_id=-1, topics=[_list_offsets_topic(TOPIC, 0, timestamp)])
        yield f"ListOffsets of {timestamp}", request
    for timestamp in (-1, -2, -3, 5):
        request = ListOffsetsRequest(replica_id=-1, topics=[_list_offsets_topic(TOPIC, 1, timestamp)])
        yield f"ListOffsets of {timestamp}, empty", request
    topics = {
        "an unknown topic": _list_offsets_topic("unknown", 0, -1),
        "an unknown partition": _list_offsets_topic(TOPIC, 9, -1),
        "a negative partition": _list_offsets_topic(TOPIC, -1, -1),
        "a newer leader epoch": _list_offsets_topic(TOPIC, 0, -1, leader_epoch=7),
        "the leader epoch": _list_offsets_topic(TOPIC, 0, -1, leader_epoch=0),
    }
    for what, topic in topics.items():
        yield f"ListOffsets of {what}", ListOffsetsRequest(replica_id=-1, topics=[topic])
    yield (
        "ListOffsets committed",
        ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[_list_offsets_topic(TOPIC, 0, -1)]),
    )
    twice = ListOffsetsTopic(name=TOPIC, partitions=2 * [ListOffsetsPartition(partition_index=0, timestamp=-1)])
    yield "ListOffsets twice", ListOffsetsRequest(replica_id=-1, topics=[twice])
    for epoch in (-1, 0, 1, 7):
        rows = [OffsetForLeaderPartition(partition=number, leader_epoch=epoch) for number in (0, 1, 9)]
        topics_asked = [OffsetForLeaderTopic(topic=name, partitions=rows) for name in (TOPIC, "unknown")]
        yield f"OffsetForLeaderEpoch of {epoch}", OffsetForLeaderEpochRequest(replica_id=-1, topics=topics_asked)


def _fetch_requests(topic_id: bytes) -> Iterator[tuple[str, Request]]:
    def fetch(name: str, of_id: bytes, partition: int, offset: int, epoch: int = -1, **fields: int) -> FetchRequest:
        row = FetchPartition(
            partition=partition, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20
        )
        topics = [FetchTopic(topic=name, topic_id=of_id, partitions=[row])]
        return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 0, "topics": topics, **fields})

    for offset in (0, 1, 5, 6, 7, -1):
        yield f"Fetch from {offset}", fetch(TOPIC, topic_id, 0, offset)
    yield "Fetch committed", fetch(TOPIC, topic_id, 0, 0, isolation_level=1)
    yield "Fetch at most a byte", fetch(TOPIC, topic_id, 0, 0, max_bytes=1)
    yield "Fetch of an empty partition", fetch(TOPIC, topic_id, 1, 0)
    yield "Fetch of an unknown partition", fetch(TOPIC, topic_id, 9, 0)
    yield "Fetch of an unknown topic", fetch("unknown", UNKNOWN_ID, 0, 0)
    yield "Fetch of no id", fetch(TOPIC, ZERO_UUID, 0, 0)
    yield "Fetch at a newer leader epoch", fetch(TOPIC, topic_id, 0, 0, epoch=7)
    yield "Fetch in a new session", fetch(TOPIC, topic_id, 0, 0, session_epoch=0)
    yield "Fetch in an unknown session", fetch(TOPIC, topic_id, 0, 0, session_id=12345, session_epoch=1)
    yield "Fetch in session 0 at epoch 5", fetch(TOPIC, topic_id, 0, 0, session_epoch=5)
    yield "Fetch of nothing", FetchRequest(max_wait_ms=0, min_bytes=0)


def _topic_requests() -> Iterator[tuple[str, Request]]:
    def create(name: str, partitions: int = 1, replicas: int = 1, **fields: object) -> CreateTopicsRequest:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)
        return CreateTopicsRequest(topics=[topic], validate_only=True)

    def assigned(*brokers: list[int]) -> dict[str, object]:
        rows = [CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in enumerate(brokers)]
        return {"partitions": -1, "replicas": -1, "assignments": rows}

    yield "CreateTopics", create("fresh")
    yield "CreateTopics with defaults", create("fresh", -1, -1)
    yield "CreateTopics assigned", create("fresh", **assigned([0], [0]))
    yield "CreateTopics assigned to an unknown broker", create("fresh", **assigned([0], [5]))
    yield "CreateTopics assigned twice to a broker", create("fresh", **assigned([0, 0]))
    yield "CreateTopics assigned to none", create("fresh", **assigned([]))
    yield "CreateTopics assigned and counted", create("fresh", **{**assigned([0]), "partitions": 1})
    for name in (TOPIC, "", ".", "..", "no spaces", "slash/", "x" * 249, "x" * 250, "__consumer_offsets"):
        yield f"CreateTopics of '{name[:20]}' ({len(name)})", create(name)
    for count in (0, -2):
        yield f"CreateTopics with {count} partitions", create("fresh", count)
        yield f"CreateTopics with {count} replicas", create("fresh", 1, count)
    yield "CreateTopics with too many replicas", create("fresh", 1, 2)
    for key, value in (("retention.ms", "soon"), ("no.such", "1"), ("segment.bytes", "5"), ("cleanup.policy", None)):
        rows = [CreatableTopicConfig(name=key, value=value)]
        yield f"CreateTopics with {key}={value}", create("fresh", configs=rows)
    yield (
        "CreateTopics twice in a request",
        CreateTopicsRequest(
            topics=[CreatableTopic(name="twin", num_partitions=1, replication_factor=1) for _ in range(2)]
        ),
    )
    for name in ("unknown", "no spaces", ""):
        yield (
            f"DeleteTopics of '{name}'",
            DeleteTopicsRequest(
                topic_names=[name], topics=[DeleteTopicState(name=name)] if name else [], timeout_ms=TIMEOUT_MS
            ),
        )
    yield (
        "DeleteTopics by an unknown id",
        DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=UNKNOWN_ID)], timeout_ms=TIMEOUT_MS),
    )
    for name, count in ((TOPIC, 2), (TOPIC, 1), (TOPIC, 0), (TOPIC, -1), ("unknown", 3), (TOPIC, 3)):
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        yield (
            f"CreatePartitions {name} to {count}",
            CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=True),
        )
    for name, partition, offset in ((TOPIC, 0, 99), (TOPIC, 0, -5), (TOPIC, 9, 0), ("unknown", 0, 0), (TOPIC, 0, 0)):
        partitions = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        topics = [DeleteRecordsTopic(name=name, partitions=partitions)]
        yield (
            f"DeleteRecords of {name}-{partition} to {offset}",
            DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS),
        )


def _config_requests() -> Iterator[tuple[str, Request]]:
    for kind, name in ((TOPIC_RESOURCE, TOPIC), (TOPIC_RESOURCE, "unknown"), (TOPIC_RESOURCE, "no spaces"),
                       (BROKER_RESOURCE, "7"), (BROKER_RESOURCE, "x"), (77, "0")):  # fmt: skip
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        yield f"DescribeConfigs of {kind} '{name}'", DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    keys = ["retention.ms", "segment.bytes", "no.such"]
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=keys)
    yield "DescribeConfigs of some keys", DescribeConfigsRequest(resources=[resource])
    changes = {
        "nothing": [],
        "an illegal value": [AlterableConfig(name="retention.ms", config_operation=0, value="soon")],
        "an unknown key": [AlterableConfig(name="no.such", config_operation=0, value="1")],
        "an unknown operation": [AlterableConfig(name="retention.ms", config_operation=9, value="1")],
        "an append to a number": [AlterableConfig(name="retention.ms", config_operation=2, value="1")],
        "a null": [AlterableConfig(name="retention.ms", config_operation=0, value=None)],
        "a key twice": 2 * [AlterableConfig(name="retention.ms", config_operation=0, value="1")],
        "a good value": [AlterableConfig(name="retention.ms", config_operation=0, value="1")],
    }
    for what, configs in changes.items():
        row = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[row], validate_only=True)
        yield f"IncrementalAlterConfigs with {what}", request
    row = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="unknown", configs=changes["a good value"])
    yield "IncrementalAlterConfigs of an unknown topic", IncrementalAlterConfigsRequest(resources=[row])
    for name in (TOPIC, "unknown"):
        asked = [DescribableLogDirTopic(topic=name, partitions=[0, 9])]
        yield f"DescribeLogDirs of {name}", DescribeLogDirsRequest(topics=asked)
        moved = [AlterReplicaLogDirTopic(name=name, partitions=[0, 9])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=moved)])
        yield f"AlterReplicaLogDirs of {name} to an unknown directory", request


def _produce(topic: str, records: bytes | None, partition: int = 0, acks: int = 1) -> ProduceRequest:
    rows = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=rows)]
    )


def _produce_questions() -> Iterator[tuple[str, Question]]:
    """Produce requests, each on its own topic. An earlier version may already have written to it."""
    for what, batch in batches.bad().items():
        yield f"Produce {what}", _to_own_topic(f"produce {what}", lambda topic, batch=batch: _produce(topic, batch))
    for acks in (-1, 1, 2, -2):
        yield (
            f"Produce with acks {acks}",
            _to_own_topic(f"acks {acks}", lambda topic, acks=acks: _produce(topic, batches.good(), acks=acks)),
        )
    for compression in CompressionType:
        yield (
            f"Produce {compression.name}",
            _to_own_topic(
                f"codec {compression.name}",
                lambda topic, compression=compression: _produce(topic, batches.good(compression)),
            ),
        )
    keyless = batches.build_batch([batches.SimpleRecord(batches.FIRST_TIMESTAMP_MS, None, b"value")])
    large = batches.build_batch(batches.records(value=b"x" * 2000))
    yield (
        "Produce without a key to a compacted topic",
        _to_own_topic("keyless", lambda topic: _produce(topic, keyless), cleanup_policy="compact"),
    )
    yield (
        "Produce more than the topic takes",
        _to_own_topic("large", lambda topic: _produce(topic, large), max_message_bytes="1000"),
    )
    yield (
        "Produce with log append time",
        _to_own_topic("appended", lambda topic: _produce(topic, batches.good()), message_timestamp_type="CreateTime"),
    )
    yield "Produce to an unknown partition", _to_own_topic("nine", lambda topic: _produce(topic, batches.good(), 9))
    yield "Produce to an unknown topic", lambda asked: asked.ask_in_every_version(_produce("unknown", batches.good()))


def _to_own_topic(name: str, request: Callable[[str], ProduceRequest], **configs: str) -> Question:
    def ask(conversation: Conversation) -> AnswersByVersion:
        topic = name.lower().replace(" ", "-")
        topic_id = _create_topic(conversation, topic, **configs)
        produce = request(topic)
        produce.topic_data[0].topic_id = topic_id
        return conversation.ask_in_every_version(produce)

    return ask


def _sequence_questions() -> Iterator[tuple[str, Question]]:
    """The responses to an idempotent producer, step by step: the recorded "versions" are the steps."""
    stories = {
        "in order": [(0, 0), (0, 2), (0, 4)],
        "again": [(0, 0), (0, 2), (0, 2), (0, 0)],
        "a gap": [(0, 0), (0, 3), (0, 2)],
        "not from the start": [(0, 5), (0, 7)],
        "a new epoch": [(0, 0), (1, 0), (0, 2)],
        "a new epoch not from the start": [(0, 0), (1, 4)],
        "long ago": [(0, 0), (0, 2), (0, 4), (0, 6), (0, 8), (0, 10), (0, 0)],
        "over the end": [(0, 0x7FFFFFFF), (0, 1)],
    }
    for what, steps in stories.items():
        yield f"Sequences {what}", lambda asked, what=what, steps=steps: _tell_sequences(asked, what, steps)


def _tell_sequences(conversation: Conversation, what: str, steps: list[tuple[int, int]]) -> AnswersByVersion:
    topic = f"sequences-{what.replace(' ', '-')}"
    _create_topic(conversation, topic)
    producer_id = conversation.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id
    answers: AnswersByVersion = {}
    for number, (epoch, sequence) in enumerate(steps):
        request = _produce(topic, batches.sequenced(producer_id, sequence, epoch), acks=-1)
        answers[str(number)] = conversation.comparable(conversation.ask(request, PRODUCE_VERSION))
    return answers


def _raw_questions() -> Iterator[tuple[str, Question]]:
    """Frames that are no valid request. The response is decoded as that of ApiVersions v0 or Metadata v1."""
    api_versions, metadata = 18, 3
    frames = {
        "an unknown API key": (request_header(999, 0), api_versions),
        "a negative API key": (request_header(-1, 0), api_versions),
        "a key that brokers do not serve": (request_header(52, 0), api_versions),
        "an unknown version": (request_header(metadata, ONE_MORE_THAN_KNOWN), api_versions),
        "a negative version": (request_header(metadata, -1), api_versions),
        "an unknown version of ApiVersions": (request_header(18, ONE_MORE_THAN_KNOWN), api_versions),
        "a body cut short": (request_header(metadata, 1) + b"\x00", metadata),
        "a body too long": (request_header(metadata, 1) + b"\x00" * 40, metadata),
        "an array too long": (request_header(metadata, 1) + b"\x7f\xff\xff\xff", metadata),
        "a header cut short": (b"\x00\x03", metadata),
        "an empty frame": (b"", metadata),
    }
    versions = {api_versions: 0, metadata: 1}
    for what, (payload, key) in frames.items():

        def ask(conversation: Conversation, payload: bytes = payload, key: int = key) -> AnswersByVersion:
            return {"raw": conversation.comparable(conversation.ask_raw(payload, key, versions[key]))}

        yield f"Frame: {what}", ask
