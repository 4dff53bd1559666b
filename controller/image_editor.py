"""ImageEditor: replays metadata records upon an image and builds the next one.

The editor copies only the maps that the records touch (copy on first write). The image that it starts from never
changes.

A config that this release does not have is skipped: a log of an older Apache Kafka may have set it. It would make each
later change of its topic or group invalid.

Threads: the event thread, or main during a replay.

Source: MetadataDelta, TopicsDelta, ClusterDelta, DefaultSupportedConfigChecker (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from barnabas.config.resources.client_metrics import CLIENT_METRICS_KEYS
from barnabas.config.table.keys import GROUP_KEYS, TOPIC_KEYS
from barnabas.controller.forwarded.answers import Answered, Answers
from barnabas.controller.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    Broker,
    ConfigKey,
    Controller,
    Endpoint,
    Image,
    Partition,
    PartitionKey,
    Topic,
)
from barnabas.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas.security.image import Change, SecurityEditor

log = logging.getLogger("barnabas.controller")

T = TypeVar("T")

#: The names of the configs that there are, by resource type; brokers may have any.
_CONFIGS: Final[Mapping[int, Container[str]]] = {
    TOPIC_RESOURCE: TOPIC_KEYS, CLIENT_METRICS_RESOURCE: CLIENT_METRICS_KEYS, GROUP_RESOURCE: GROUP_KEYS,
}  # fmt: skip
_SET: Final = 1  # `fenced` and `in_controlled_shutdown` of a BrokerRegistrationChangeRecord: -1 clears, 0 keeps


@dataclass(slots=True)
class Delta:
    """The names of everything that a run of records touched; the values are in the image after it."""

    partitions: set[PartitionKey] = field(default_factory=set)
    previous: dict[PartitionKey, Partition] = field(default_factory=dict)  # the old state of those that existed before
    deleted_topics: dict[bytes, Topic] = field(default_factory=dict)  # by topic id
    brokers: set[int] = field(default_factory=set)
    has_controllers: bool = False
    configs: set[tuple[int, str, str]] = field(default_factory=set)  # (resource type, name, key)
    has_features: bool = False
    security: set[Change] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Return whether the change has to be pushed to brokers."""
        return bool(
            self.partitions
            or self.deleted_topics
            or self.brokers
            or self.has_controllers
            or self.configs
            or self.has_features
            or self.security
        )

    def invariants(self, image: Image) -> None:
        """Assert invariant 3 of the image after this change (image.py)."""
        for key, before in self.previous.items():
            after = image.partition(key)
            if after is not None:
                changed = f"inv. 3: {before} became {after}"
                assert after.partition_epoch > before.partition_epoch, changed
                assert after.leader_epoch >= before.leader_epoch, changed
                assert after.leader == before.leader or after.leader_epoch > before.leader_epoch, changed


class ImageEditor:
    """Replays records upon an image: `image()` returns the next image and `delta` the change. For one thread."""

    def __init__(self, image: Image) -> None:
        self._security = SecurityEditor(image.security)
        self.delta = Delta(security=self._security.changes)
        self._offset = image.offset
        self._next_producer_id = image.next_producer_id
        self._brokers = dict(image.brokers)
        self._controllers = image.controllers
        self._topics = image.topics
        self._topic_ids = image.topic_ids
        self._configs = image.configs
        self._features = image.features
        self._answers = image.answers
        # The maps that were copied: whole maps by name, partitions by topic id, configs by resource.
        self._owned: set[str] = set()
        # Equal values as one object: most partitions have the same replicas, and are in one of few states.
        self._shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._shared_partitions: dict[Partition, Partition] = {}
        self._owned_topics: set[bytes] = set()
        self._entries: dict[ConfigKey, dict[str, str]] = {}

    def image(self, offset: int | None = None) -> Image:
        """Return the image after all applied records; the editor must not be used afterwards.

        `offset` replaces the offset of the last record.
        """
        return Image(
            brokers=self._brokers,
            controllers=self._controllers,
            topics=self._topics,
            topic_ids=self._topic_ids,
            configs=self._configs,
            features=self._features,
            next_producer_id=self._next_producer_id,
            security=self._security.image(),
            answers=self._answers,
            offset=self._offset if offset is None else offset,
        )

    def apply_all(self, records: Iterable[object], base_offset: int) -> None:
        """Replay records; the first has `base_offset`."""
        for offset, record in enumerate(records, base_offset):
            self.apply(record, offset)

    def forget_changes(self) -> None:
        """Forget which partitions the records have touched: a replay of a whole log does not ask for them."""
        self.delta.partitions.clear()
        self.delta.previous.clear()
        self._shared_partitions.clear()  # former states are of no use

    def apply(self, record: object, offset: int) -> None:
        """Replay one record; unknown types are skipped, so that logs with newer records can be read."""
        self._offset = offset
        handler = _HANDLERS.get(type(record))
        if handler is not None:
            handler(self, record)
        else:
            self._security.apply(record)

    # -- brokers

    def _register(self, record: RegisterBrokerRecord) -> None:
        self.delta.brokers.add(record.broker_id)
        self._brokers[record.broker_id] = Broker(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
            rack=record.rack,
            log_dirs=tuple(record.log_dirs),
            is_fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            cordoned_log_dirs=tuple(record.cordoned_log_dirs or ()),
        )

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.delta.has_controllers = True
        controller = Controller(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
        )
        self._controllers = {**self._controllers, controller.id: controller}

    def _unregister(self, record: UnregisterBrokerRecord) -> None:
        self.delta.brokers.add(record.broker_id)
        self._brokers.pop(record.broker_id, None)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._brokers[record.broker_id]
        if record.fenced:
            broker = broker._replace(is_fenced=record.fenced == _SET)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=record.in_controlled_shutdown == _SET)
        if record.log_dirs:
            broker = broker._replace(log_dirs=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_log_dirs=tuple(record.cordoned_log_dirs))
        self._replace_broker(broker)

    def _fence(self, record: FenceBrokerRecord) -> None:
        self._replace_broker(self._brokers[record.id]._replace(is_fenced=True))

    def _unfence(self, record: UnfenceBrokerRecord) -> None:
        self._replace_broker(self._brokers[record.id]._replace(is_fenced=False))

    def _replace_broker(self, broker: Broker) -> None:
        self.delta.brokers.add(broker.id)
        self._brokers[broker.id] = broker

    # -- topics

    def _add_topic(self, record: TopicRecord) -> None:
        self._own_topics()[record.topic_id] = Topic(record.name, record.topic_id, {})
        self._own_topic_ids()[record.name] = record.topic_id
        self._owned_topics.add(record.topic_id)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._own_topics().pop(record.topic_id)
        del self._own_topic_ids()[topic.name]
        self.delta.deleted_topics[topic.id] = topic
        self.delta.partitions -= {PartitionKey(topic.id, index) for index in topic.partitions}
        self._owned_topics.discard(topic.id)
        for key in self._configs.get(ConfigKey(TOPIC_RESOURCE, topic.name), {}):
            self.delta.configs.add((TOPIC_RESOURCE, topic.name, key))
        self._own_configs().pop(ConfigKey(TOPIC_RESOURCE, topic.name), None)
        self._entries.pop(ConfigKey(TOPIC_RESOURCE, topic.name), None)

    def _add_partition(self, record: PartitionRecord) -> None:
        self._set_partition(
            PartitionKey(record.topic_id, record.partition_id),
            Partition(
                replicas=self._one(record.replicas),
                isr=self._one(record.isr),
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
                removing=tuple(record.removing_replicas),
                adding=tuple(record.adding_replicas),
                recovery_state=record.leader_recovery_state,
                directories=self._one(record.directories),
                elr=tuple(record.eligible_leader_replicas or ()),
                last_known_elr=tuple(record.last_known_elr or ()),
            ),
        )

    def _one(self, values: Iterable[T]) -> tuple[T, ...]:
        made = tuple(values)
        return self._shared.setdefault(made, made)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        current = self._topics[record.topic_id].partitions[record.partition_id]
        self._set_partition(PartitionKey(record.topic_id, record.partition_id), current.merge(record))

    def _clear_elr(self, record: ClearElrRecord) -> None:
        if record.topic_name:
            topics = [self._topics[self._topic_ids[record.topic_name]]]
        else:
            topics = list(self._topics.values())
        for topic in topics:
            for index, partition in list(topic.partitions.items()):
                if partition.elr or partition.last_known_elr:
                    change = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                    self._set_partition(PartitionKey(topic.id, index), partition.merge(change))

    def _set_partition(self, key: PartitionKey, partition: Partition) -> None:
        topic = self._topics[key.topic_id]
        before = topic.partitions.get(key.partition)
        if before is not None:
            self.delta.previous.setdefault(key, before)
        self.delta.partitions.add(key)
        if key.topic_id not in self._owned_topics:
            self._owned_topics.add(key.topic_id)
            topic = topic._replace(partitions=dict(topic.partitions))
            self._own_topics()[key.topic_id] = topic
        partitions = topic.partitions
        assert isinstance(partitions, dict)
        partitions[key.partition] = self._shared_partitions.setdefault(partition, partition)

    # -- the rest

    def _set_config(self, record: ConfigRecord) -> None:
        if record.resource_type != BROKER_RESOURCE and record.name not in _CONFIGS.get(record.resource_type, ()):
            log.info(
                "The metadata log sets %s of %s (resource type %d), which this release does not have: it is skipped",
                record.name, record.resource_name, record.resource_type,
            )  # fmt: skip
            return
        self.delta.configs.add((record.resource_type, record.resource_name, record.name))
        configs = self._own_configs()
        resource = ConfigKey(record.resource_type, record.resource_name)
        entries = self._entries.get(resource)
        if entries is None:
            entries = self._entries[resource] = dict(configs.get(resource, {}))
        if record.value is None:
            entries.pop(record.name, None)
        else:
            entries[record.name] = record.value
        if entries:
            configs[resource] = entries
        else:
            configs.pop(resource, None)

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        self.delta.has_features = True
        features = dict(self._features)
        if record.feature_level == 0:
            features.pop(record.name, None)
        else:
            features[record.name] = record.feature_level
        self._features = features

    def _set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _note_answer(self, record: NoOpRecord) -> None:
        answered = Answered.of_record(record)
        if answered is not None:
            self._own_answers().note(answered)

    # -- copy on first write

    def _own_topics(self) -> dict[bytes, Topic]:
        if "topics" not in self._owned:
            self._owned.add("topics")
            self._topics = dict(self._topics)
        assert isinstance(self._topics, dict)
        return self._topics

    def _own_topic_ids(self) -> dict[str, bytes]:
        if "topic_ids" not in self._owned:
            self._owned.add("topic_ids")
            self._topic_ids = dict(self._topic_ids)
        assert isinstance(self._topic_ids, dict)
        return self._topic_ids

    def _own_configs(self) -> dict[ConfigKey, Mapping[str, str]]:
        if "configs" not in self._owned:
            self._owned.add("configs")
            self._configs = dict(self._configs)
        assert isinstance(self._configs, dict)
        return self._configs

    def _own_answers(self) -> Answers:
        if "answers" not in self._owned:
            self._owned.add("answers")
            self._answers = self._answers.copy()
        return self._answers


_HANDLERS: Final[dict[type, Callable[[ImageEditor, Any], None]]] = {
    RegisterBrokerRecord: ImageEditor._register,
    UnregisterBrokerRecord: ImageEditor._unregister,
    RegisterControllerRecord: ImageEditor._register_controller,
    BrokerRegistrationChangeRecord: ImageEditor._change_broker,
    FenceBrokerRecord: ImageEditor._fence,
    UnfenceBrokerRecord: ImageEditor._unfence,
    TopicRecord: ImageEditor._add_topic,
    RemoveTopicRecord: ImageEditor._remove_topic,
    PartitionRecord: ImageEditor._add_partition,
    PartitionChangeRecord: ImageEditor._change_partition,
    ClearElrRecord: ImageEditor._clear_elr,
    ConfigRecord: ImageEditor._set_config,
    FeatureLevelRecord: ImageEditor._set_feature,
    ProducerIdsRecord: ImageEditor._set_producer_ids,
    NoOpRecord: ImageEditor._note_answer,
}


def with_records(image: Image, records: Iterable[object]) -> Image:
    """Return the image after some more records, for decisions that look ahead and for tests."""
    editor = ImageEditor(image)
    editor.apply_all(records, image.offset + 1)
    return editor.image()
