"""The tagged fields that we add to other people's messages: their numbers and their encoding, in one place.

On the controller's push (LeaderAndIsr, StopReplica, UpdateMetadata); a broker of Apache Kafka would skip them:

    10000   metadata records, each an unsigned varint length and the record in its frame (version 1, type, version,
            payload). LeaderAndIsr, or else UpdateMetadata: ConfigRecord (value null = removed) and FeatureLevelRecord,
            applied before the body; in a FULL push they are all there are. UpdateMetadata: RegisterBrokerRecords, of
            all registered brokers or of none. StopReplica: what says that a replica's log is to be deleted, a
            RemoveTopicRecord or a PartitionRecord without the receiver; nothing is deleted without.
    10001   int64, big endian: the metadata offset, inclusive, of the image that the message was built from. On
            UpdateMetadata: up to there the receiver is now complete, unless tag 10004 is there. On all three: what is
            older than what the receiver has obeyed came too late
    10002   whom it is for: uuid, incarnation id of the receiving process; int32, its broker id; cluster id in UTF-8, to
            the end. The incarnation id is a capability: only that broker and the controllers know it. It is never
            shown to clients, on pages or in logs.
    10004   empty; on an UpdateMetadata that tells only a part of what changed up to its offset

On BrokerRegistration and BrokerHeartbeat:

    10003   int64, big endian: the highest metadata offset that the broker has obeyed in this cluster, in any of its
            lives; -1 if none
    10005   int32, big endian: the controller epoch under which it was told of that offset

On the response to BrokerRegistration:

    10006   UTF-8: why the registration is refused, for a person

(registration_tags.py reads and writes the three.)

What cannot be read raises MalformedMessageError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.metadata_records import decode_record, encode_record
from barnabas.protocol.primitives import encode_uvarint, read_uvarint
from barnabas.protocol.schema import Message

# The type of a LeaderAndIsr or UpdateMetadata.
INCREMENTAL: Final = 1
FULL: Final = 2

TAG_RECORDS: Final = 10000
TAG_OFFSET: Final = 10001
TAG_RECEIVER: Final = 10002
TAG_OBEYED_OFFSET: Final = 10003
TAG_PARTIAL: Final = 10004
TAG_OBEYED_EPOCH: Final = 10005
TAG_REASON: Final = 10006

_INT64: Final = struct.Struct(">q")
_RECEIVER: Final = struct.Struct(">16si")


class Receiver(NamedTuple):
    """Whom a push is for: one process."""

    cluster_id: str
    broker_id: int
    incarnation_id: bytes  # 16 bytes; secret

    def __repr__(self) -> str:
        """Show it without the secret."""
        return f"broker {self.broker_id} of cluster {self.cluster_id}"


def tag_of(message: Message, number: int) -> bytes | None:
    """Return the content of a tagged field that the message's schema does not know; None if it has none."""
    return next((raw for tag, raw in message.unknown_tagged_fields if tag == number), None)


def set_tag(message: Message, number: int, raw: bytes) -> None:
    """Give a message a tagged field, in place of one of this number."""
    others = [(tag, data) for tag, data in message.unknown_tagged_fields if tag != number]
    message.unknown_tagged_fields = tuple(sorted([*others, (number, raw)]))


def set_records(message: Message, records: Iterable[Any]) -> None:
    """Have the message carry these metadata records; none: no tag."""
    frames = [encode_record(record) for record in records]
    if frames:
        set_tag(message, TAG_RECORDS, b"".join(encode_uvarint(len(frame)) + frame for frame in frames))


def records_of(message: Message) -> list[Any]:
    """Return the metadata records that a message carries."""
    raw = tag_of(message, TAG_RECORDS) or b""
    records = []
    position = 0
    try:
        while position < len(raw):
            size, position = read_uvarint(raw, position)
            if size > len(raw) - position:
                raise MalformedMessageError(f"a metadata record of {size} bytes where {len(raw) - position} are left")
            records.append(decode_record(raw[position : position + size]))
            position += size
    except (IndexError, struct.error) as error:
        raise MalformedMessageError("the metadata records of a push are cut off") from error
    return records


def set_offset(message: Message, offset: int, tag: int = TAG_OFFSET) -> None:
    """Say up to which metadata offset."""
    set_tag(message, tag, _INT64.pack(offset))


def offset_of(message: Message, tag: int = TAG_OFFSET) -> int | None:
    """Return the metadata offset that a message names; None if it names none."""
    raw = tag_of(message, tag)
    if raw is None:
        return None
    if len(raw) != _INT64.size:
        raise MalformedMessageError(f"tag {tag} has {len(raw)} bytes, not {_INT64.size}")
    offset: int = _INT64.unpack(raw)[0]
    return offset


def set_receiver(message: Message, receiver: Receiver) -> None:
    """Say whom a push is for."""
    set_tag(message, TAG_RECEIVER, receiver_bytes(receiver))


def receiver_bytes(receiver: Receiver) -> bytes:
    """Return the content of the tagged field that says whom a push is for."""
    return _RECEIVER.pack(receiver.incarnation_id, receiver.broker_id) + receiver.cluster_id.encode()


def receiver_of(message: Message) -> Receiver | None:
    """Return whom a push is for; None if it does not say."""
    raw = tag_of(message, TAG_RECEIVER)
    if raw is None:
        return None
    try:
        incarnation_id, broker_id = _RECEIVER.unpack_from(raw)
        return Receiver(raw[_RECEIVER.size :].decode(), broker_id, incarnation_id)
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError("the receiver of a push cannot be read") from error
