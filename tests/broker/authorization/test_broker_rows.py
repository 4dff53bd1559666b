"""THE table of rights of a broker: each row with the right present, and taken away.

Topics t and u, groups g and h, transactional ids x and y: only the second of each pair is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.broker_rows import ROWS
from barnabas.broker.authorization.row import Answer, Row
from barnabas.broker.settings.dynamic_config import ResourceType as ConfigType
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    request_class,
)
from barnabas.protocol.messages import k09_offset_fetch as k09
from barnabas.protocol.messages import k21_delete_records as k21
from barnabas.protocol.messages import k23_offset_for_leader_epoch as k23
from barnabas.protocol.messages import k24_add_partitions_to_txn as k24
from barnabas.protocol.messages import k28_txn_offset_commit as k28
from barnabas.protocol.messages import k32_describe_configs as k32
from barnabas.protocol.messages import k44_incremental_alter_configs as k44
from barnabas.protocol.messages import k47_offset_delete as k47
from barnabas.protocol.messages import k61_describe_producers as k61
from barnabas.protocol.messages import k75_describe_topic_partitions as k75
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.k66_list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.security.values import ANY_NAME, CLUSTER_NAME, ResourceType
from tests.broker.apis.config_rig import make_services
from tests.broker.apis.group_rig import Rig as GroupRig
from tests.broker.apis.test_transaction_apis import PRODUCER_ID, TransactionApiRig
from tests.broker.authorization.kit import ask, authorizer, lacking, make_request
from tests.support.broker.broker_rig import batch, state, topic_id

T, U = topic_id("t"), topic_id("u")
T_ID, U_ID = b"t" * 16, b"u" * 16  # in the rig of the groups

#: The error of an item by its name; an item that is left out has none.
Found = dict[str, int]


class Kit:
    """Two brokers: one with logs and transactions, one with groups; and the authorizer that both ask."""

    def __init__(self) -> None:
        self.broker = TransactionApiRig()
        self.broker.push({"t": [state(1)], "u": [state(1)]})
        self.groups = GroupRig()
        self.configs = make_services()
        self.by: Any = None

    def ask(self, message: Any, version: int, **about: Any) -> Any:
        return ask(self.broker.services, message, version, self.by, **about)

    def ask_groups(self, message: Any, version: int) -> Any:
        return ask(self.groups.services, message, version, self.by)


@pytest.fixture
def kit() -> Iterator[Kit]:
    made = Kit()
    yield made
    made.broker.close()


# -- requests


def produce(kit: Kit, version: int = 13, **fields: Any) -> Any:
    topics = [
        k00_produce.TopicProduceData(
            **({"topic_id": id_} if version >= 13 else {"name": name}),
            partition_data=[
                k00_produce.PartitionProduceData(
                    index=0, records=memoryview(bytearray(fields.get("records", batch(b"v"))))
                )
            ],
        )
        for name, id_ in (("t", T), ("u", U))
    ]
    message = k00_produce.ProduceRequest(
        acks=1, timeout_ms=10, topic_data=topics, transactional_id=fields.get("transactional_id")
    )
    answer = kit.ask(message, version)
    return {
        kit.broker.cache.snapshot.topic_names.get(t.topic_id, t.name): t.partition_responses[0].error_code
        for t in answer.responses
    }


def transactional(kit: Kit) -> Found:
    records = batch(b"v", producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0, is_transactional=True)
    return {"y" if code else "x": code for code in produce(kit, 9, records=records, transactional_id="y").values()}


def fetch(kit: Kit, replica_id: int = -1) -> Found:
    topics = [
        k01_fetch.FetchTopic(
            topic=name,
            partitions=[k01_fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)],
        )
        for name in ("t", "u")
    ]
    answer = kit.ask(k01_fetch.FetchRequest(max_wait_ms=0, max_bytes=100, replica_id=replica_id, topics=topics), 12)
    return {t.topic: t.partitions[0].error_code for t in answer.responses}


def list_offsets(kit: Kit, replica_id: int = -1) -> Found:
    topics = [
        k02_list_offsets.ListOffsetsTopic(
            name=name, partitions=[k02_list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
        )
        for name in ("t", "u")
    ]
    answer = kit.ask(k02_list_offsets.ListOffsetsRequest(replica_id=replica_id, topics=topics), 7)
    return {t.name: t.partitions[0].error_code for t in answer.topics}


def metadata(kit: Kit, *names: str, creates: bool = False) -> Found:
    topics = [k03_metadata.MetadataRequestTopic(name=name) for name in names] or None
    answer = kit.ask(k03_metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=creates), 9)
    return {t.name: t.error_code for t in answer.topics}


def created_by_metadata(kit: Kit) -> Found:
    found = metadata(kit, "new", "other", creates=True)
    return {"t": found["new"], "u": found["other"]}


def commit(kit: Kit) -> Found:
    rows = [k08_offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
    topics = [k08_offset_commit.OffsetCommitRequestTopic(topic_id=id_, partitions=rows) for id_ in (T_ID, U_ID)]
    answer = kit.ask_groups(k08_offset_commit.OffsetCommitRequest(group_id="g", topics=topics), 10)
    return {chr(t.topic_id[0]): t.partitions[0].error_code for t in answer.topics}


def fetch_offsets(kit: Kit) -> Any:
    commit(kit)
    topics = [k09.OffsetFetchRequestTopics(topic_id=id_, partition_indexes=[0]) for id_ in (T_ID, U_ID)]
    groups = [k09.OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("g", "h")]
    return kit.ask_groups(k09.OffsetFetchRequest(groups=groups), 10).groups


def offsets_of_groups(kit: Kit) -> Found:
    return {group.group_id: group.error_code for group in fetch_offsets(kit)}


def offsets_of_topics(kit: Kit) -> Found:
    return {chr(t.topic_id[0]): t.partitions[0].error_code for t in fetch_offsets(kit)[0].topics}


def all_offsets(kit: Kit) -> Found:
    by, kit.by = kit.by, None
    commit(kit)
    kit.by = by
    group = k09.OffsetFetchRequestGroup(group_id="g", topics=None)
    (answer,) = kit.ask_groups(k09.OffsetFetchRequest(groups=[group]), 8).groups
    return {t.name: t.partitions[0].error_code for t in answer.topics}


def find(kit: Kit, key_type: int, *keys: str) -> Found:
    services = SimpleNamespace(
        metadata_cache=kit.groups.services.metadata_cache,
        group_coordinator=kit.groups.services.group_coordinator,
        transaction_coordinator=SimpleNamespace(partition_for=lambda _key: 0),
        auto_topic_creation=SimpleNamespace(create_internal=lambda _name: None),
    )
    message = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    answer = ask(services, message, 4, kit.by)
    return {c.key: c.error_code for c in answer.coordinators}


def describe_groups(kit: Kit) -> Found:
    answer = kit.ask_groups(DescribeGroupsRequest(groups=["g", "h"]), 6)
    return {g.group_id: g.error_code for g in answer.groups}


def list_groups(kit: Kit) -> Found:
    by, kit.by = kit.by, None
    commit(kit)
    rows = [k08_offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
    topic = k08_offset_commit.OffsetCommitRequestTopic(topic_id=T_ID, partitions=rows)
    kit.ask_groups(k08_offset_commit.OffsetCommitRequest(group_id="h", topics=[topic]), 10)
    kit.by = by
    return {g.group_id: 0 for g in kit.ask_groups(ListGroupsRequest(), 5).groups}


def delete_records(kit: Kit) -> Found:
    topics = [
        k21.DeleteRecordsTopic(name=name, partitions=[k21.DeleteRecordsPartition(partition_index=0, offset=0)])
        for name in ("t", "u")
    ]
    answer = kit.ask(k21.DeleteRecordsRequest(topics=topics, timeout_ms=1), 2)
    return {t.name: t.partitions[0].error_code for t in answer.topics}


def epochs(kit: Kit) -> Found:
    topics = [
        k23.OffsetForLeaderTopic(topic=name, partitions=[k23.OffsetForLeaderPartition(partition=0)])
        for name in ("t", "u")
    ]
    answer = kit.ask(k23.OffsetForLeaderEpochRequest(topics=topics), 4)
    return {t.topic: t.partitions[0].error_code for t in answer.topics}


def add_partitions(kit: Kit, transactional_id: str = "x") -> Found:
    message = k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id, v3_and_below_producer_id=PRODUCER_ID,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("t", "u")],
    )  # fmt: skip
    answer = kit.ask(message, 3)
    return {t.name: t.results_by_partition[0].partition_error_code for t in answer.results_by_topic_v3_and_below}


def add_to_transactions(kit: Kit) -> Found:
    return {id_: add_partitions(kit, id_)["t"] for id_ in ("x", "y")}


def txn_commit(kit: Kit) -> Found:
    add_partitions(kit)
    rows = [k28.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
    topics = [k28.TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name in ("t", "u")]
    message = k28.TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=PRODUCER_ID, producer_epoch=0, topics=topics
    )
    answer = kit.ask(message, 0)
    return {t.name: t.partitions[0].error_code for t in answer.topics}


def describe_configs(kit: Kit, kind: int, *names: str) -> Found:
    resources = [k32.DescribeConfigsResource(resource_type=kind, resource_name=name) for name in names]
    answer = ask(kit.configs, k32.DescribeConfigsRequest(resources=resources), 4, kit.by)
    return {r.resource_name: r.error_code for r in answer.results}


def topic_configs(kit: Kit) -> Found:
    found = describe_configs(kit, ConfigType.TOPIC, "a", "u")
    return {"t": found["a"], "u": found["u"]}


def alter_loggers(kit: Kit) -> Found:
    change = k44.AlterableConfig(name="root", config_operation=0, value="INFO")
    resource = k44.AlterConfigsResource(resource_type=ConfigType.BROKER_LOGGER, resource_name="1", configs=[change])
    answer = ask(kit.configs, k44.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1, kit.by)
    return {CLUSTER_NAME: answer.responses[0].error_code}


def delete_groups(kit: Kit) -> Found:
    answer = kit.ask_groups(DeleteGroupsRequest(groups_names=["g", "h"]), 2)
    return {r.group_id: r.error_code for r in answer.results}


def delete_offsets(kit: Kit) -> Found:
    by, kit.by = kit.by, None
    commit(kit)
    kit.by = by
    rows = [k47.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [k47.OffsetDeleteRequestTopic(name=name, partitions=rows) for name in ("t", "u")]
    answer = kit.ask_groups(k47.OffsetDeleteRequest(group_id="g", topics=topics), 0)
    return {t.name: t.partitions[0].error_code for t in answer.topics}


def producers(kit: Kit) -> Found:
    topics = [k61.TopicRequest(name=name, partition_indexes=[0]) for name in ("t", "u")]
    answer = kit.ask(k61.DescribeProducersRequest(topics=topics), 0)
    return {t.name: t.partitions[0].error_code for t in answer.topics}


def transactions(kit: Kit) -> Found:
    answer = kit.ask(DescribeTransactionsRequest(transactional_ids=["x", "y"]), 0)
    return {t.transactional_id: t.error_code for t in answer.transaction_states}


def topics_of_transaction(kit: Kit) -> Found:
    by, kit.by = kit.by, None
    add_partitions(kit)
    kit.by = by
    (found,) = kit.ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0).transaction_states
    return {t.topic: 0 for t in found.topics}


def list_transactions(kit: Kit) -> Found:
    kit.broker.ask(InitProducerIdRequest(transactional_id="y", transaction_timeout_ms=60_000), 4)
    return {t.transactional_id: 0 for t in kit.ask(ListTransactionsRequest(), 1).transaction_states}


def heartbeat(kit: Kit, *names: str, group: str = "g", regex: str | None = None) -> Any:
    message = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=0, rebalance_timeout_ms=9000,
        subscribed_topic_names=list(names), subscribed_topic_regex=regex, topic_partitions=[],
    )  # fmt: skip
    return kit.ask_groups(message, 1)


def subscribed(kit: Kit) -> Found:
    return {"t": heartbeat(kit, "t", group="k").error_code, "u": heartbeat(kit, "u", group="l").error_code}


def matched(kit: Kit) -> Found:
    heartbeat(kit, regex="[tu]")
    kit.groups.world.coordinator.run_pending_jobs()
    answer = heartbeat(kit, regex="[tu]")
    return {chr(t.topic_id[0]): 0 for t in answer.assignment.topic_partitions}


def describe_consumer_groups(kit: Kit, group: str = "g", topic: str = "t") -> Found:
    by, kit.by = kit.by, None
    heartbeat(kit, "t")
    heartbeat(kit, topic, group="h")
    kit.by = by
    answer = kit.ask_groups(ConsumerGroupDescribeRequest(group_ids=["g", "h"]), 1)
    return {g.group_id: g.error_code for g in answer.groups}


def topics_of_consumer_groups(kit: Kit) -> Found:
    found = describe_consumer_groups(kit, topic="u")
    return {"t": found["g"], "u": found["h"]}


def describe_topics(kit: Kit, *names: str) -> Found:
    topics = [k75.TopicRequest(name=name) for name in names]
    answer = kit.ask(k75.DescribeTopicPartitionsRequest(topics=topics), 0)
    return {t.name: t.error_code for t in answer.topics}


def metadata_operations(kit: Kit) -> Found:
    message = k03_metadata.MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    return {CLUSTER_NAME: 0} if kit.ask(message, 8).cluster_authorized_operations else {}


def cluster_operations(kit: Kit) -> Found:
    message = DescribeClusterRequest(include_cluster_authorized_operations=True)
    return {CLUSTER_NAME: 0} if kit.ask(message, 1).cluster_authorized_operations else {}


def idempotent(kit: Kit) -> Found:
    return {"any": kit.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4).error_code}


#: What to ask for each row that an API asks about itself.
SCENARIOS: dict[Row, Callable[[Kit], Found]] = {
    rights.PRODUCE_TRANSACTION: transactional,
    rights.PRODUCE_TOPIC: produce,
    rights.FETCH_AS_REPLICA: lambda kit: {CLUSTER_NAME: fetch(kit, replica_id=2)["u"]},
    rights.FETCH_TOPIC: fetch,
    rights.LIST_OFFSETS_AS_REPLICA: lambda kit: {CLUSTER_NAME: list_offsets(kit, replica_id=2)["u"]},
    rights.LIST_OFFSETS_TOPIC: list_offsets,
    rights.METADATA_TOPIC: lambda kit: metadata(kit, "t", "u"),
    rights.METADATA_ALL_TOPICS: metadata,
    rights.METADATA_CLUSTER: metadata_operations,
    rights.OFFSET_COMMIT_TOPIC: commit,
    rights.OFFSET_FETCH_GROUP: offsets_of_groups,
    rights.OFFSET_FETCH_TOPIC: offsets_of_topics,
    rights.OFFSET_FETCH_ALL_TOPICS: all_offsets,
    rights.FIND_GROUP: lambda kit: find(kit, 0, "g", "h"),
    rights.FIND_TRANSACTION: lambda kit: find(kit, 1, "x", "y"),
    rights.DESCRIBE_GROUP: describe_groups,
    rights.DELETE_RECORDS_TOPIC: delete_records,
    rights.ADD_PARTITIONS: add_to_transactions,
    rights.ADD_PARTITIONS_TOPIC: add_partitions,
    rights.TXN_OFFSET_COMMIT_TOPIC: txn_commit,
    rights.DESCRIBE_TOPIC_CONFIGS: topic_configs,
    rights.DESCRIBE_CLUSTER_CONFIGS: lambda kit: {CLUSTER_NAME: describe_configs(kit, ConfigType.BROKER, "1")["1"]},
    rights.DESCRIBE_GROUP_CONFIGS: lambda kit: describe_configs(kit, ConfigType.GROUP, "g", "h"),
    rights.ALTER_LOGGERS: alter_loggers,
    rights.DELETE_GROUP: delete_groups,
    rights.OFFSET_DELETE_TOPIC: delete_offsets,
    rights.DESCRIBE_CLUSTER: cluster_operations,
    rights.DESCRIBE_PRODUCERS_TOPIC: producers,
    rights.DESCRIBE_TRANSACTION: transactions,
    rights.DESCRIBE_TRANSACTION_TOPIC: topics_of_transaction,
    rights.LIST_TRANSACTION: list_transactions,
    rights.CONSUMER_HEARTBEAT: lambda kit: {g: heartbeat(kit, "t", group=g).error_code for g in ("g", "h")},
    rights.CONSUMER_HEARTBEAT_TOPIC: subscribed,
    rights.CONSUMER_REGEX_TOPIC: matched,
    rights.CONSUMER_GROUP_DESCRIBE: describe_consumer_groups,
    rights.CONSUMER_GROUP_DESCRIBE_TOPIC: topics_of_consumer_groups,
    rights.DESCRIBE_TOPIC: lambda kit: describe_topics(kit, "t", "u"),
    rights.DESCRIBE_ALL_TOPICS: describe_topics,
}
#: Rights that another one stands for: (what stands for it, the scenario).
ALTERNATIVES: dict[Row, tuple[Row, Callable[[Kit], Found]]] = {
    rights.LIST_GROUP: (rights.LIST_ANY_GROUP, list_groups),
    rights.EPOCHS_OF_TOPIC: (rights.EPOCHS_OF_ANY_TOPIC, epochs),
}
#: Rows of APIs whose tests are with the API: delegation tokens.
ELSEWHERE = {rights.CREATE_TOKEN, rights.DESCRIBE_TOKEN, rights.DESCRIBE_TOKENS_OF}
FIRST = {ResourceType.TOPIC: "t", ResourceType.GROUP: "g", ResourceType.TRANSACTIONAL_ID: "x"}
SECOND = {
    ResourceType.TOPIC: "u",
    ResourceType.GROUP: "h",
    ResourceType.TRANSACTIONAL_ID: "y",
    ResourceType.CLUSTER: CLUSTER_NAME,
}


def row_id(row: Row) -> str:
    return f"{row.key.name}-{row.operation.name}-{row.resource.name}-{row.condition}"


def refusals(row: Row, found: Found) -> list[str]:
    """The names that a row refuses."""
    if row.answer is Answer.LEFT_OUT:
        names = [name for name in (FIRST.get(row.resource), SECOND[row.resource]) if name is not None]
        return [name for name in names if name not in found]
    return [name for name, code in found.items() if code == row.error]


@pytest.mark.parametrize("row", SCENARIOS, ids=row_id)
def test_an_item_is_refused_without_its_right_and_the_others_are_not(row: Row, kit: Kit) -> None:
    kit.by = lacking(row, name=SECOND[row.resource])
    assert refusals(row, SCENARIOS[row](kit)) == [SECOND[row.resource]]


@pytest.mark.parametrize("row", SCENARIOS, ids=row_id)
def test_no_item_is_refused_with_its_right(row: Row, kit: Kit) -> None:
    kit.by = lacking()
    assert refusals(row, SCENARIOS[row](kit)) == []


@pytest.mark.parametrize("row", ALTERNATIVES, ids=row_id)
def test_a_right_has_an_alternative(row: Row, kit: Kit) -> None:
    other, scenario = ALTERNATIVES[row]
    kit.by = lacking(row, name=SECOND[row.resource])
    assert refusals(row, scenario(kit)) == []
    kit.by = lacking(other)
    assert refusals(row, scenario(kit)) == []
    kit.by = lacking(row, other, name=SECOND[row.resource])
    assert refusals(row, scenario(kit)) == [SECOND[row.resource]]


def test_a_missing_topic_is_created_by_whom_may_create_it_or_any() -> None:
    kit = Kit()
    kit.broker.config.auto_create_topics_enable = True
    row, other = rights.METADATA_CREATE_TOPIC, rights.METADATA_CREATE_ANY
    unknown, refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, row.error
    for by, expected in (
        (lacking(row, name="other"), {"t": unknown, "u": unknown}),
        (lacking(other), {"t": unknown, "u": unknown}),
        (lacking(row, other, name="other"), {"t": unknown, "u": refused}),
    ):
        kit.by = by
        assert created_by_metadata(kit) == expected
    kit.broker.close()


# -- rows that the dispatcher asks

WHOLE = [row for row in ROWS if row.asks is not None and row.answer is Answer.REQUEST]
NAMES = {"group_id": "g", "transactional_id": "x"}
#: Versions and fields with which a row applies.
APPLIES: dict[Row, tuple[int, dict[str, Any]]] = {
    rights.INIT_TWO_PHASE: (6, {"enable2_pc": True}),
    rights.INIT_ANY_TOPIC: (4, {"transactional_id": None}),
    rights.ADD_PARTITIONS_OF_CLIENTS: (4, {}),
    rights.SYNC_GROUP: (5, {"protocol_type": "p", "protocol_name": "n"}),
}
#: The rights that stand for a row.
STANDS_FOR = {
    rights.INIT_ANY_TOPIC: rights.INIT_IDEMPOTENT,
    rights.WRITE_MARKERS: rights.WRITE_MARKERS_OF_ADMIN,
}


def whole_request(row: Row) -> Any:
    message = request_class(row.key)
    api = TABLE.get(row.key)
    version, fields = APPLIES.get(row, (message.MAX_VERSION if api is None else api.versions[1], {}))
    if row.key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return make_request(message(), version)
    names = {name: text for name, text in NAMES.items() if hasattr(message(), name)}
    return make_request(message(**{**names, **fields}), version)


@pytest.mark.parametrize("row", WHOLE, ids=row_id)
def test_a_request_is_refused_without_its_right(row: Row) -> None:
    request, api = whole_request(row), SimpleNamespace(key=row.key, name=row.key.name)
    stand_in = [STANDS_FOR[row]] if row in STANDS_FOR else []
    lacking(*stand_in).admit(api, request)  # type: ignore[arg-type]
    if stand_in:
        lacking(row).admit(api, request)  # type: ignore[arg-type]
    with pytest.raises(ApiError) as refused:
        lacking(row, *stand_in).admit(api, request)  # type: ignore[arg-type]
    assert refused.value.code == row.error


@pytest.mark.parametrize("row", [row for row in WHOLE if row.resource in FIRST and not row.is_any], ids=row_id)
def test_the_right_is_asked_for_the_resource_that_the_request_names(row: Row) -> None:
    request, api = whole_request(row), SimpleNamespace(key=row.key, name=row.key.name)
    lacking(row, name="other").admit(api, request)  # type: ignore[arg-type]
    with pytest.raises(ApiError):
        lacking(row, name=FIRST[row.resource]).admit(api, request)  # type: ignore[arg-type]


def test_a_sync_without_protocol_is_refused_for_that_first(kit: Kit) -> None:
    from barnabas.protocol.messages.k14_sync_group import SyncGroupRequest

    kit.by = lacking(rights.SYNC_GROUP)
    answer = kit.ask_groups(SyncGroupRequest(group_id="g"), 5)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_every_row_is_tested() -> None:
    tested = {*SCENARIOS, *ALTERNATIVES, *(other for other, _ in ALTERNATIVES.values()), *WHOLE, *STANDS_FOR.values()}
    rest = set(ROWS) - tested - ELSEWHERE - {rights.METADATA_CREATE_ANY, rights.METADATA_CREATE_TOPIC}
    assert sorted(map(row_id, rest)) == []


def test_an_idempotent_producer_needs_the_right_to_some_topic(kit: Kit) -> None:
    kit.by = authorizer([], default=False)
    assert idempotent(kit) == {"any": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_metadata_never_tells_whether_a_hidden_topic_exists(kit: Kit) -> None:
    """The answers about a topic that exists and one that does not are the same but for the name."""
    kit.by = authorizer([], default=False)

    def told(name: str) -> Any:
        message = k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name=name)])
        (topic,) = kit.ask(message, 12).topics
        topic.name = ANY_NAME
        return topic

    assert told("t") == told("nowhere")
    assert told("t").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_an_unknown_topic_id_is_unknown_whatever_the_rights(kit: Kit) -> None:
    kit.by = authorizer([], default=False)
    known, unknown = (
        kit.ask(k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name=None, topic_id=id_)]), 12)
        for id_ in (T, b"?" * 16)
    )
    assert (known.topics[0].error_code, known.topics[0].name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    assert unknown.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    topics = [
        k01_fetch.FetchTopic(topic_id=id_, partitions=[k01_fetch.FetchPartition(partition=0, fetch_offset=0)])
        for id_ in (T, b"?" * 16)
    ]
    answer = kit.ask(k01_fetch.FetchRequest(max_wait_ms=0, max_bytes=100, topics=topics), 13)
    assert {t.topic_id: t.partitions[0].error_code for t in answer.responses} == {
        T: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        b"?" * 16: ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_no_partition_is_named_to_who_may_not_read_its_topic(kit: Kit) -> None:
    """A partition that does not exist gets the same error as one that does."""
    kit.by = lacking(rights.FETCH_TOPIC, name="u")
    partitions = [k01_fetch.FetchPartition(partition=p, fetch_offset=0) for p in (0, 99)]
    topics = [k01_fetch.FetchTopic(topic="u", partitions=partitions)]
    (found,) = kit.ask(k01_fetch.FetchRequest(max_wait_ms=0, max_bytes=100, topics=topics), 12).responses
    assert [p.error_code for p in found.partitions] == [rights.FETCH_TOPIC.error] * 2
