"""The wire facts of the controller's pushes: our tagged fields, and the constants of the three requests.

Apache Kafka ignores tagged fields that it does not know, so its brokers would accept our messages.

On the pushes (LeaderAndIsr, StopReplica, UpdateMetadata):

    10000   Metadata records. Each is an unsigned varint length and the framed record (version 1, type, version,
            payload).
            LeaderAndIsr (UpdateMetadata if there is no LeaderAndIsr): ConfigRecord (a null value removes the config)
            and FeatureLevelRecord. The receiver applies them before the body. A FULL push carries all of them.
            UpdateMetadata: RegisterBrokerRecord, either of all registered brokers or of none. Also ACLs, SCRAM
            credentials, delegation tokens and client quotas: all of them in a FULL push, else those that changed,
            where a Remove...Record (ClientQuotaRecord with `remove`) removes one.
            StopReplica: the reason to delete a replica's log, which is a RemoveTopicRecord or a PartitionRecord
            without the receiver. Without such a record nothing is deleted.
    10001   int64, big endian: the metadata offset, inclusive, of the image that the message was built from. A
            push below the highest offset that the receiver has obeyed is late. An UpdateMetadata without tag 10004
            completes the receiver's metadata up to this offset.
    10002   The receiver: uuid, incarnation id of the receiving process; int32, its broker id; the rest is the cluster
            id in UTF-8. The incarnation id is a capability: only that broker and the controllers know it. It never
            appears in responses to clients, on pages or in logs.
    10004   Empty. Marks an UpdateMetadata that carries only a part of the changes up to its offset.

On BrokerRegistration and BrokerHeartbeat requests:

    10003   int64, big endian: the highest metadata offset that the broker has ever obeyed in this cluster; -1 if none.
    10005   int32, big endian: the controller epoch of the push with that offset.

On every request of a broker or of a standby controller to the active controller:

    10010   UTF-8: the sender's cluster id. The controller of another cluster, to which an address may belong by now,
            refuses the request.

On the BrokerRegistration response:

    10006   UTF-8: the reason for a refusal, for people.
    10000   Metadata records as above: the ConfigRecords of the broker and of all brokers; all ACLs, SCRAM credentials,
            delegation tokens and client quotas.
    10001   The metadata offset of these records.
    10005   int32, big endian: the epoch of the controller that sends them.

On an Envelope request that carries a CreateDelegationToken:

    10007   uuid: the id of the token. The broker draws it once, so an envelope that arrives twice makes one token.

On every Envelope request:

    10011   uuid: the sender, one channel of one process of a broker; int64: the number of the request, above those of
            the sender's former requests; int32: the count of the attempt to send it, from 1. A sender has given up an
            attempt before it makes the next. So a request that arrives twice is carried out once.

(10012 is in a metadata record: controller/forwarded/answers.py.)

On a DescribeQuorum response:

    10008   int64, big endian: since when the leader is the active controller, in ms since the epoch.
    10009   int64, big endian: the time in ms within which a majority of the voters must fetch, or the leader resigns.

A tag of a push that cannot be read raises MalformedMessageError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.messages.k55_describe_quorum import DescribeQuorumResponse
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.metadata_records import MetadataRecord, decode_record, encode_record
from barnabas.protocol.primitives import encode_uvarint, read_uvarint
from barnabas.protocol.schema import Message

# The `type` of a LeaderAndIsr or UpdateMetadata.
INCREMENTAL: Final = 1
FULL: Final = 2

# In an UpdateMetadata this leader means that the partition was deleted (LeaderAndIsr.LeaderDuringDelete, Kafka 3.9).
LEADER_DURING_DELETE: Final = -2
EPOCH_DURING_DELETE: Final = -2

TAG_RECORDS: Final = 10000
TAG_OFFSET: Final = 10001
TAG_RECEIVER: Final = 10002
TAG_OBEYED_OFFSET: Final = 10003
TAG_PARTIAL: Final = 10004
TAG_OBEYED_EPOCH: Final = 10005
TAG_REASON: Final = 10006
TAG_TOKEN_ID: Final = 10007
TAG_ACTIVE_SINCE: Final = 10008
TAG_CHECK_QUORUM: Final = 10009
TAG_CLUSTER_ID: Final = 10010
TAG_ATTEMPT: Final = 10011

UNKNOWN_EPOCH: Final = -1

_UUID_BYTES: Final = 16
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_RECEIVER: Final = struct.Struct(">16si")
_ATTEMPT: Final = struct.Struct(">16sqi")


class Receiver(NamedTuple):
    """The one process that may obey a push."""

    cluster_id: str
    broker_id: int
    incarnation_id: bytes  # 16 bytes; secret

    def __repr__(self) -> str:
        """Show it without the secret."""
        return f"broker {self.broker_id} of cluster {self.cluster_id}"


class Applied(NamedTuple):
    """How far a broker has come: it has obeyed the pushes up to `offset`, inclusive, of the controller of `epoch`."""

    offset: int
    epoch: int = UNKNOWN_EPOCH


class Attempt(NamedTuple):
    """Which forwarded request this is, and how often it was sent."""

    sender: bytes  # 16 bytes; drawn by each channel of a broker
    number: int
    nth: int = 1

    def __repr__(self) -> str:
        """Show it without the sender, which nobody else should know."""
        return f"attempt {self.nth} of request {self.number}"


def tag_of(message: Message, number: int) -> bytes | None:
    """Return the content of a tagged field that the message's schema does not know; None if it is absent."""
    return next((raw for tag, raw in message.unknown_tagged_fields if tag == number), None)


def set_tag(message: Message, number: int, raw: bytes) -> None:
    """Set a tagged field; an earlier value of the same number is replaced."""
    others = [(tag, data) for tag, data in message.unknown_tagged_fields if tag != number]
    message.unknown_tagged_fields = tuple(sorted([*others, (number, raw)]))


# -- on pushes


def set_records(message: Message, records: Iterable[MetadataRecord]) -> None:
    """Add metadata records to a push; without records no tag is set."""
    frames = [encode_record(record) for record in records]
    if frames:
        set_tag(message, TAG_RECORDS, b"".join(encode_uvarint(len(frame)) + frame for frame in frames))


def records_of(message: Message) -> list[MetadataRecord]:
    """Return the metadata records of a push, in order."""
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


def set_offset(message: Message, offset: int) -> None:
    """Set the metadata offset that a push was built from."""
    set_tag(message, TAG_OFFSET, _INT64.pack(offset))


def offset_of(message: Message) -> int | None:
    """Return the metadata offset of a push; None if it has none."""
    raw = tag_of(message, TAG_OFFSET)
    if raw is None:
        return None
    if len(raw) != _INT64.size:
        raise MalformedMessageError(f"tag {TAG_OFFSET} has {len(raw)} bytes, not {_INT64.size}")
    offset: int = _INT64.unpack(raw)[0]
    return offset


def set_receiver(message: Message, receiver: Receiver) -> None:
    """Set the process that a push is for."""
    set_tag(message, TAG_RECEIVER, receiver_bytes(receiver))


def receiver_bytes(receiver: Receiver) -> bytes:
    """Return the content of tag 10002."""
    return _RECEIVER.pack(receiver.incarnation_id, receiver.broker_id) + receiver.cluster_id.encode()


def receiver_of(message: Message) -> Receiver | None:
    """Return the process that a push is for; None if it names none."""
    raw = tag_of(message, TAG_RECEIVER)
    if raw is None:
        return None
    try:
        incarnation_id, broker_id = _RECEIVER.unpack_from(raw)
        return Receiver(raw[_RECEIVER.size :].decode(), broker_id, incarnation_id)
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError("the receiver of a push cannot be read") from error


# -- on registrations and heartbeats


def set_applied(request: BrokerRegistrationRequest | BrokerHeartbeatRequest, applied: Applied) -> None:
    """Report in a request how far the broker has come."""
    set_tag(request, TAG_OBEYED_OFFSET, _INT64.pack(applied.offset))
    set_tag(request, TAG_OBEYED_EPOCH, _INT32.pack(applied.epoch))


def applied_of(request: BrokerRegistrationRequest | BrokerHeartbeatRequest) -> Applied | None:
    """Return how far the broker has come; None if it has obeyed nothing yet or does not report it.

    Raises ApiError(INVALID_REGISTRATION) if a tag has the wrong size.
    """
    try:
        offset_tag, epoch_tag = tag_of(request, TAG_OBEYED_OFFSET), tag_of(request, TAG_OBEYED_EPOCH)
        if offset_tag is None:
            return None
        epoch = UNKNOWN_EPOCH if epoch_tag is None else _INT32.unpack(epoch_tag)[0]
        applied = Applied(_INT64.unpack(offset_tag)[0], epoch)
    except struct.error:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "A tagged field has a wrong size") from None
    return applied if applied.offset >= 0 else None


def set_cluster_id(request: Message, cluster_id: str) -> None:
    """Set the cluster of the sender of a request to the active controller."""
    set_tag(request, TAG_CLUSTER_ID, cluster_id.encode())


def cluster_id_of(request: Message) -> str | None:
    """Return the cluster of the sender; None if the request does not name it."""
    raw = tag_of(request, TAG_CLUSTER_ID)
    return None if raw is None else raw.decode(errors="replace")


def set_controller_epoch(response: BrokerRegistrationResponse, epoch: int) -> None:
    """Set the epoch of the controller that accepts a registration."""
    set_tag(response, TAG_OBEYED_EPOCH, _INT32.pack(epoch))


def controller_epoch_of(response: BrokerRegistrationResponse) -> int:
    """Return the epoch of the controller that accepted a registration; UNKNOWN_EPOCH if it does not say."""
    raw = tag_of(response, TAG_OBEYED_EPOCH)
    if raw is None:
        return UNKNOWN_EPOCH
    if len(raw) != _INT32.size:
        raise MalformedMessageError(f"tag {TAG_OBEYED_EPOCH} has {len(raw)} bytes, not {_INT32.size}")
    epoch: int = _INT32.unpack(raw)[0]
    return epoch


def set_reason(response: BrokerRegistrationResponse, reason: str) -> None:
    """Set the reason for a refusal."""
    set_tag(response, TAG_REASON, reason.encode())


def reason_of(response: BrokerRegistrationResponse) -> str | None:
    """Return the reason for a refusal, in one line; None if the controller gives none."""
    tag = tag_of(response, TAG_REASON)
    return None if tag is None else " ".join(tag.decode(errors="replace").split())


# -- on envelopes


def set_token_id(envelope: EnvelopeRequest, token_id: bytes) -> None:
    """Set the id of the delegation token that the enclosed request creates."""
    set_tag(envelope, TAG_TOKEN_ID, token_id)


def token_id_of(envelope: EnvelopeRequest) -> bytes | None:
    """Return the id of the delegation token to create; None if the envelope names none, or no uuid."""
    raw = tag_of(envelope, TAG_TOKEN_ID)
    return raw if raw is not None and len(raw) == _UUID_BYTES else None


def set_attempt(envelope: EnvelopeRequest, attempt: Attempt) -> None:
    """Set which request the envelope carries, and how often it was sent."""
    set_tag(envelope, TAG_ATTEMPT, _ATTEMPT.pack(*attempt))


def attempt_of(envelope: EnvelopeRequest) -> Attempt | None:
    """Return which request the envelope carries; None if it does not say so, or cannot be read."""
    raw = tag_of(envelope, TAG_ATTEMPT)
    return Attempt(*_ATTEMPT.unpack(raw)) if raw is not None and len(raw) == _ATTEMPT.size else None


# -- on the description of the quorum


def set_active_since(response: DescribeQuorumResponse, since_ms: int) -> None:
    """Report since when the leader is the active controller."""
    set_tag(response, TAG_ACTIVE_SINCE, _INT64.pack(since_ms))


def active_since_of(response: DescribeQuorumResponse) -> int | None:
    """Return since when the leader is the active controller; None if the response does not say so."""
    return _int64_of(response, TAG_ACTIVE_SINCE)


def set_check_quorum(response: DescribeQuorumResponse, timeout_ms: int) -> None:
    """Report within which time a majority of the voters must fetch."""
    set_tag(response, TAG_CHECK_QUORUM, _INT64.pack(timeout_ms))


def check_quorum_of(response: DescribeQuorumResponse) -> int | None:
    """Return within which time a majority of the voters must fetch; None if the response does not say so."""
    return _int64_of(response, TAG_CHECK_QUORUM)


def _int64_of(response: DescribeQuorumResponse, tag: int) -> int | None:
    raw = tag_of(response, tag)
    if raw is None or len(raw) != _INT64.size:
        return None
    number: int = _INT64.unpack(raw)[0]
    return number
