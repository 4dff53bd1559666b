"""Reads __consumer_offsets: the assignment of each generation, and every committed offset, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from barnabas.broker.coordinators.offsets import records as offset_records
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC
from tests.churn.assignment import assigned_partitions
from tests.churn.history import GroupHistory
from tests.churn.members import TOPIC

TIMEOUT_S = 20
POLL_S = 0.5
AT_ONCE = 1000


def read_group_log(client: Mapping[str, Any], partitions: int, histories: Iterable[GroupHistory]) -> None:
    """Read every partition to its end and add its records to the histories."""
    by_group = {history.group: history for history in histories}
    consumer = Consumer({**client, "group.id": "proof", "enable.auto.commit": False})
    try:
        for number in range(partitions):
            tp = TopicPartition(GROUP_METADATA_TOPIC, number, 0)
            end = consumer.get_watermark_offsets(tp, TIMEOUT_S)[1]
            consumer.assign([tp])
            while end and consumer.position([tp])[0].offset < end:
                for message in consumer.consume(AT_ONCE, POLL_S):
                    if message.error() is None and message.key() is not None:
                        note(by_group, message.key(), message.value(), message.offset())
    finally:
        consumer.close()


def note(histories: Mapping[str, GroupHistory], key: bytes, value: bytes | None, offset: int) -> None:
    """Add one record of __consumer_offsets to its group's history."""
    record = offset_records.read(key, value, offset)
    history = None if record is None else histories.get(record.group_id)
    if history is None:
        return
    if isinstance(record, offset_records.OffsetRecord) and record.committed is not None:
        history.offset_logged(record.partition, record.committed.offset)
    elif isinstance(record, offset_records.GroupRecord) and record.group is not None:
        group = record.group
        history.generation_logged(group.generation_id)
        for member in group.members.by_id.values():
            partitions = assigned_partitions(member.assignment, TOPIC)
            history.claimed("the log", member.client_id, group.generation_id, partitions)
