"""Topics and partitions."""

from __future__ import annotations

from barnabas.protocol.metadata_records.record import MetadataRecord
from barnabas.protocol.schema import array, int8, int32, string, uuid


class TopicRecord(MetadataRecord, record_type=2, versions="0", flexible="0+"):
    """A topic is created; its configs and partitions follow."""

    name: str = string("0+")
    topic_id: bytes = uuid("0+")


class PartitionRecord(MetadataRecord, record_type=3, versions="0-2", flexible="0+"):
    """A partition is created in this state."""

    partition_id: int = int32("0+", -1)
    topic_id: bytes = uuid("0+")
    replicas: list[int] = array(int32, "0+")
    isr: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    leader: int = int32("0+", -1)
    leader_recovery_state: int = int8("0+", tag=0, tagged="0+")
    leader_epoch: int = int32("0+", -1)
    partition_epoch: int = int32("0+", -1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", None, nullable="2+", tag=1, tagged="2+")
    last_known_elr: list[int] | None = array(int32, "2+", None, nullable="2+", tag=2, tagged="2+")


class PartitionChangeRecord(MetadataRecord, record_type=5, versions="0-2", flexible="0+"):
    """A partition changes; null (-1, -2 for numbers) keeps a field as it is."""

    partition_id: int = int32("0+", -1)
    topic_id: bytes = uuid("0+")
    isr: list[int] | None = array(int32, "0+", None, nullable="0+", tag=0, tagged="0+")
    leader: int = int32("0+", -2, tag=1, tagged="0+")
    replicas: list[int] | None = array(int32, "0+", None, nullable="0+", tag=2, tagged="0+")
    removing_replicas: list[int] | None = array(int32, "0+", None, nullable="0+", tag=3, tagged="0+")
    adding_replicas: list[int] | None = array(int32, "0+", None, nullable="0+", tag=4, tagged="0+")
    leader_recovery_state: int = int8("0+", -1, tag=5, tagged="0+")
    directories: list[bytes] | None = array(uuid, "1+", None, nullable="1+", tag=8, tagged="1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", None, nullable="2+", tag=6, tagged="2+")
    last_known_elr: list[int] | None = array(int32, "2+", None, nullable="2+", tag=7, tagged="2+")


class RemoveTopicRecord(MetadataRecord, record_type=9, versions="0", flexible="0+"):
    """A topic and its partitions are deleted."""

    topic_id: bytes = uuid("0+")


class ClearElrRecord(MetadataRecord, record_type=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic (or of all topics) are cleared."""

    topic_name: str = string("0+")
