"""What to ask for each right of a broker, of brokers in memory or of running ones.

Topics t and u, groups g and h, transactional ids x and y: a test takes the right to the second of each pair away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any, Protocol

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.row import Row
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.settings.dynamic_config import ResourceType as ConfigType
from barnabas.protocol.messages import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
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
from barnabas.security.values import CLUSTER_NAME, ResourceType
from tests.broker.apis.config_rig import make_services
from tests.broker.apis.group_rig import Rig as GroupRig
from tests.broker.apis.test_transaction_apis import PRODUCER_ID, TransactionApiRig
from tests.broker.authorization.kit import ask
from tests.broker.authorization.share_scenarios import SHARE_SCENARIOS
from tests.broker.authorization.streams_scenarios import STREAMS_SCENARIOS
from tests.support.broker.broker_rig import batch, state, topic_id

#: The error of an item by its name; an item that is left out has none.
Found = dict[str, int]


class Kit(Protocol):
    """The brokers that are asked: `MemoryKit`, or one process for everything."""

    producers: dict[str, tuple[int, int]]  # id and epoch, by transactional id
    ids: dict[str, bytes]  # of the topics of `ask`
    group_ids: dict[str, bytes]  # of the topics of `ask_groups`

    def ask(self, message: Any, version: int) -> Any:
        """Ask about logs and transactions."""

    def ask_groups(self, message: Any, version: int) -> Any:
        """Ask about groups."""

    def ask_coordinators(self, message: Any, version: int) -> Any:
        """Ask who coordinates."""

    def ask_configs(self, message: Any, version: int) -> Any:
        """Ask about configs."""

    def unchecked(self) -> AbstractContextManager[None]:
        """Have every right meanwhile."""

    def before(self, preparation: Callable[[], object]) -> None:
        """Prepare something with every right, if it is not prepared already."""

    def settle(self) -> None:
        """Wait for what groups do in the background."""


class MemoryKit:
    """Two brokers: one with logs and transactions, one with groups; and the authorizer that both ask."""

    def __init__(self) -> None:
        self.broker = TransactionApiRig()
        self.broker.push({"t": [state(1)], "u": [state(1)]})
        self.groups = GroupRig()
        self.groups.world.cache.finalized_features = FinalizedFeatures(
            {"group.version": 1, "share.version": 1, "streams.version": 1}, 3
        )
        self.configs = make_services()
        self.by: Any = None
        self.producers = {"x": (PRODUCER_ID, 0)}
        self.ids = {name: topic_id(name) for name in ("t", "u")}
        self.group_ids = {"t": b"t" * 16, "u": b"u" * 16}

    def ask(self, message: Any, version: int) -> Any:
        return ask(self.broker.services, message, version, self.by)

    def ask_groups(self, message: Any, version: int) -> Any:
        return ask(self.groups.services, message, version, self.by)

    def ask_coordinators(self, message: Any, version: int) -> Any:
        services = SimpleNamespace(
            metadata_cache=self.groups.services.metadata_cache,
            group_coordinator=self.groups.services.group_coordinator,
            transaction_coordinator=SimpleNamespace(partition_for=lambda _key: 0),
            auto_topic_creation=SimpleNamespace(create_internal=lambda _name: None),
        )
        return ask(services, message, version, self.by)

    def ask_configs(self, message: Any, version: int) -> Any:
        return ask(self.configs, message, version, self.by)

    @contextmanager
    def unchecked(self) -> Iterator[None]:
        by, self.by = self.by, None
        yield
        self.by = by

    def before(self, preparation: Callable[[], object]) -> None:
        with self.unchecked():
            preparation()

    def settle(self) -> None:
        self.groups.world.coordinator.run_pending_jobs()

    def close(self) -> None:
        self.broker.close()


def names(ids: dict[str, bytes]) -> dict[bytes, str]:
    return {id_: name for name, id_ in ids.items()}


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
        for name, id_ in kit.ids.items()
    ]
    message = k00_produce.ProduceRequest(
        acks=1, timeout_ms=10, topic_data=topics, transactional_id=fields.get("transactional_id")
    )
    answer = kit.ask(message, version)
    return {names(kit.ids).get(t.topic_id, t.name): t.partition_responses[0].error_code for t in answer.responses}


def transactional(kit: Kit) -> Found:
    records = batch(b"v", producer_id=kit.producers["x"][0], producer_epoch=0, base_sequence=0, is_transactional=True)
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
    topics = [
        k08_offset_commit.OffsetCommitRequestTopic(topic_id=id_, partitions=rows) for id_ in kit.group_ids.values()
    ]
    answer = kit.ask_groups(k08_offset_commit.OffsetCommitRequest(group_id="g", topics=topics), 10)
    return {names(kit.group_ids)[t.topic_id]: t.partitions[0].error_code for t in answer.topics}


def fetch_offsets(kit: Kit) -> Any:
    commit(kit)
    topics = [k09.OffsetFetchRequestTopics(topic_id=id_, partition_indexes=[0]) for id_ in kit.group_ids.values()]
    groups = [k09.OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("g", "h")]
    return kit.ask_groups(k09.OffsetFetchRequest(groups=groups), 10).groups


def offsets_of_groups(kit: Kit) -> Found:
    return {group.group_id: group.error_code for group in fetch_offsets(kit)}


def offsets_of_topics(kit: Kit) -> Found:
    return {names(kit.group_ids)[t.topic_id]: t.partitions[0].error_code for t in fetch_offsets(kit)[0].topics}


def all_offsets(kit: Kit) -> Found:
    with kit.unchecked():
        commit(kit)
    group = k09.OffsetFetchRequestGroup(group_id="g", topics=None)
    (answer,) = kit.ask_groups(k09.OffsetFetchRequest(groups=[group]), 8).groups
    return {t.name: t.partitions[0].error_code for t in answer.topics}


def find(kit: Kit, key_type: int, *keys: str) -> Found:
    message = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    answer = kit.ask_coordinators(message, 4)
    return {c.key: c.error_code for c in answer.coordinators}


def describe_groups(kit: Kit) -> Found:
    answer = kit.ask_groups(DescribeGroupsRequest(groups=["g", "h"]), 6)
    return {g.group_id: g.error_code for g in answer.groups}


def list_groups(kit: Kit) -> Found:
    with kit.unchecked():
        commit(kit)
        rows = [k08_offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
        topic = k08_offset_commit.OffsetCommitRequestTopic(topic_id=kit.group_ids["t"], partitions=rows)
        kit.ask_groups(k08_offset_commit.OffsetCommitRequest(group_id="h", topics=[topic]), 10)
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
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=kit.producers.get(transactional_id, (0, 0))[0],
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
        transactional_id="x", group_id="g", producer_id=kit.producers["x"][0], producer_epoch=0, topics=topics
    )
    answer = kit.ask(message, 0)
    return {t.name: t.partitions[0].error_code for t in answer.topics}


def describe_configs(kit: Kit, kind: int, *names: str) -> Found:
    resources = [k32.DescribeConfigsResource(resource_type=kind, resource_name=name) for name in names]
    answer = kit.ask_configs(k32.DescribeConfigsRequest(resources=resources), 4)
    return {r.resource_name: r.error_code for r in answer.results}


def topic_configs(kit: Kit) -> Found:
    found = describe_configs(kit, ConfigType.TOPIC, "a", "u")
    return {"t": found["a"], "u": found["u"]}


def alter_loggers(kit: Kit) -> Found:
    change = k44.AlterableConfig(name="root", config_operation=0, value="INFO")
    resource = k44.AlterConfigsResource(resource_type=ConfigType.BROKER_LOGGER, resource_name="1", configs=[change])
    answer = kit.ask_configs(k44.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)
    return {CLUSTER_NAME: answer.responses[0].error_code}


def delete_groups(kit: Kit) -> Found:
    answer = kit.ask_groups(DeleteGroupsRequest(groups_names=["g", "h"]), 2)
    return {r.group_id: r.error_code for r in answer.results}


def delete_offsets(kit: Kit) -> Found:
    with kit.unchecked():
        commit(kit)
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
    with kit.unchecked():
        add_partitions(kit)
    (found,) = kit.ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0).transaction_states
    return {t.topic: 0 for t in found.topics}


def list_transactions(kit: Kit) -> Found:
    with kit.unchecked():
        kit.ask(InitProducerIdRequest(transactional_id="y", transaction_timeout_ms=60_000), 4)
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
    kit.settle()
    answer = heartbeat(kit, regex="[tu]")
    return {names(kit.group_ids)[t.topic_id]: 0 for t in answer.assignment.topic_partitions}


def describe_consumer_groups(kit: Kit, group: str = "g", topic: str = "t") -> Found:
    with kit.unchecked():
        heartbeat(kit, "t")
        heartbeat(kit, topic, group="h")
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
    **SHARE_SCENARIOS,
    **STREAMS_SCENARIOS,
}
#: Rights that another one stands for: (what stands for it, the scenario).
ALTERNATIVES: dict[Row, tuple[Row, Callable[[Kit], Found]]] = {
    rights.LIST_GROUP: (rights.LIST_ANY_GROUP, list_groups),
    rights.EPOCHS_OF_TOPIC: (rights.EPOCHS_OF_ANY_TOPIC, epochs),
}
#: Rows of APIs whose tests are with the API: delegation tokens, share fetches, internal topics of streams groups.
ELSEWHERE = {
    rights.CREATE_TOKEN,
    rights.DESCRIBE_TOKEN,
    rights.DESCRIBE_TOKENS_OF,
    rights.SHARE_FETCH_TOPIC,
    rights.SHARE_ACKNOWLEDGE_TOPIC,
    rights.STREAMS_CREATE_ANY,
    rights.STREAMS_CREATE_TOPIC,
}
FIRST = {ResourceType.TOPIC: "t", ResourceType.GROUP: "g", ResourceType.TRANSACTIONAL_ID: "x"}
SECOND = {
    ResourceType.TOPIC: "u",
    ResourceType.GROUP: "h",
    ResourceType.TRANSACTIONAL_ID: "y",
    ResourceType.CLUSTER: CLUSTER_NAME,
}
