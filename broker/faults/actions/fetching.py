"""Faults of Fetch, whose requests name only the changes of their session (`withheld.py`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.faults.actions.withheld import WithholdingSessions
from barnabas.broker.fetch_sessions.sessions import FINAL_EPOCH, INITIAL_EPOCH, TOPIC_IDS_FROM
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import HEADER_SIZE, corrupt_crc

if TYPE_CHECKING:
    from barnabas.broker.faults.matching import Partition
    from barnabas.broker.requests.request import Request

#: Errors at the top of a Fetch response: they concern the session, not a partition.
OF_THE_SESSION: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
SESSIONS_FROM: Final = 7


def partitions_of(services: Any, request: Request) -> list[Partition]:
    """Return the partitions of a fetch: those that it names and those of its session, without those that it removes."""
    message, version = request.message, request.header.api_version
    names = services.metadata_cache.snapshot.topic_names

    def name_of(topic: Any) -> str:
        return str(names.get(topic.topic_id, "") if version >= TOPIC_IDS_FROM else topic.topic)

    found = {(name_of(topic), asked.partition): None for topic in message.topics for asked in topic.partitions}
    if version >= SESSIONS_FROM and message.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        forgotten = {(name_of(topic), index) for topic in message.forgotten_topics_data for index in topic.partitions}
        for tp in services.fetch_sessions.partitions_of(message.session_id):
            if (tp.topic, tp.partition) not in forgotten:
                found[tp.topic, tp.partition] = None
    return list(found)


def fail(services: Any, request: Request, chosen: Collection[Partition], code: ErrorCode) -> Any:
    """Return services with which the API answers these partitions with an error, and does not wait for records."""
    request.message.max_wait_ms = 0
    withheld = {TopicPartition(topic, index) for topic, index in chosen if index is not None}
    services = copy.copy(services)
    services.fetch_sessions = WithholdingSessions(services.fetch_sessions, withheld, code)
    return services


def corruptible(response: Any, fits: Callable[[str, int], bool]) -> list[tuple[Partition, Any]]:
    """Return the matching partitions of a response that have records, with their data."""
    return [
        ((topic.topic, data.partition_index), data)
        for topic in response.responses
        for data in topic.partitions
        if _has_records(data) and fits(topic.topic, data.partition_index)
    ]


def _has_records(data: Any) -> bool:
    records = data.records
    return bool(records) and bool(getattr(records, "size", 1))


def corrupt(data: Any) -> None:
    """Break the CRC of the first batch in a copy that is sent; the log is not changed."""
    records = data.records if isinstance(data.records, (bytes, bytearray, memoryview)) else data.records.read()
    broken = bytearray(records)
    if len(broken) >= HEADER_SIZE:
        corrupt_crc(broken)
    data.records = bytes(broken)
