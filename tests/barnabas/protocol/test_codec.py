"""The compiled codecs: round trips of everything, golden bytes, tagged fields, versions, and what is refused.

The reasons for a refusal to encode are those of diagnosis.py.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from barnabas.protocol import codec
from barnabas.protocol.errors import (
    EncodeError,
    MalformedMessageError,
    UnsupportedFieldError,
    UnsupportedVersionError,
)
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.messages.k75_describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from barnabas.protocol.schema import (
    Message,
    Struct,
    array,
    bool_,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)
from barnabas.protocol.schema import (
    struct as struct_,
)
from tests.support import messages as facts

CLASSES = facts.all_classes()
ROUND_TRIPS = 12


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_round_trip(message_class: type[Message]) -> None:
    """What is encoded decodes to an equal message, from bytes and from a view, in parts and whole."""
    for version in facts.versions(message_class):
        for message in facts.samples(message_class, version, ROUND_TRIPS):
            wire = message.encode(version)
            assert message_class.decode_prefix(wire, version) == (message, len(wire))
            framed = memoryview(bytearray(b"ab" + wire + b"tail"))
            assert message_class.decode_prefix(framed, version, 2)[0] == message
            assert b"".join(bytes(part) for part in message.encode_parts(version)) == wire


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_decoded_messages_encode_to_the_same_bytes(message_class: type[Message]) -> None:
    for version in facts.versions(message_class):
        for message in facts.samples(message_class, version, 2):
            wire = message.encode(version)
            assert message_class.decode(wire, version).encode(version) == wire


GOLDEN = [
    # Worked out by hand from the protocol guide: the fields in order, one literal each.
    (
        ApiVersionsRequest(client_software_name="kafka-python", client_software_version="3.0"),
        3,
        b"\x0dkafka-python\x043.0\x00",
    ),
    (ApiVersionsRequest(), 0, b""),
    (MetadataRequest(topics=None), 1, b"\xff\xff\xff\xff"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=True),
        9,
        b"\x02\x02a\x00\x01\x00\x00\x00",
    ),
    (
        HeartbeatRequest(group_id="g", generation_id=7, member_id="m", group_instance_id=None),
        4,
        b"\x02g\x00\x00\x00\x07\x02m\x00\x00",
    ),
    (
        HeartbeatRequest(group_id="g", generation_id=7, member_id="m", group_instance_id=None),
        3,
        b"\x00\x01g\x00\x00\x00\x07\x00\x01m\xff\xff",
    ),
    (
        ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=b"xyz")])],
        ),
        8,
        b"\xff\xff\xff\xff\x00\x00\x03\xe8\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03xyz",
    ),
    (
        FetchRequest(replica_state=ReplicaState(replica_id=1, replica_epoch=2), cluster_id="c"),
        15,
        b"\x00\x00\x00\x00"
        b"\x00\x00\x00\x00"
        b"\x7f\xff\xff\xff"
        b"\x00"
        b"\x00\x00\x00\x00"
        b"\xff\xff\xff\xff"
        b"\x01"
        b"\x01"
        b"\x01"
        b"\x02"
        b"\x00\x02\x02c"
        b"\x01\x0d\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00",
    ),
    (DescribeTopicPartitionsRequest(cursor=None), 0, b"\x01\x00\x00\x07\xd0\xff\x00"),
    (
        DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=1)),
        0,
        b"\x01\x00\x00\x07\xd0\x01\x02t\x00\x00\x00\x01\x00\x00",
    ),
]


@pytest.mark.parametrize(("message", "version", "wire"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes(message: Message, version: int, wire: bytes) -> None:
    assert message.encode(version) == wire
    assert type(message).decode(wire, version) == message


def test_long_lengths_take_more_bytes() -> None:
    name = "x" * 300
    wire = MetadataRequest(topics=[MetadataRequestTopic(name=name)]).encode(9)
    assert wire.startswith(b"\x02\xad\x02xxx")
    assert MetadataRequest.decode(wire, 9).topics == [MetadataRequestTopic(name=name)]


# Tagged fields


def test_default_tagged_fields_are_not_written() -> None:
    assert FetchRequest(cluster_id=None).encode(15).endswith(b"\x01\x01\x01\x00")


def test_unknown_tags_are_kept_in_order_among_the_known_ones() -> None:
    request = FetchRequest(cluster_id="c", unknown_tagged_fields=((5, b"five"), (300, b"")))
    wire = request.encode(15)
    assert wire.endswith(b"\x03\x00\x02\x02c\x05\x04five\xac\x02\x00")
    assert FetchRequest.decode(wire, 15).unknown_tagged_fields == ((5, b"five"), (300, b""))


@pytest.mark.parametrize(
    "section",
    [
        b"\x02\x05\x00\x05\x00",  # twice the same tag
        b"\x02\x06\x00\x05\x00",  # descending
        b"\x01\x00\x03\x02c",  # the value is shorter than its size
        b"\x01\x00\x01\x02c",  # the value is longer than its size
        b"\x01\x05\x7f",  # passes the end
        b"\x7f",  # more fields than bytes
        b"\xff\xff\xff\xff\x1f",  # a count above 32 bits
        b"\x80\x80\x80\x80\x80\x00",  # a count of six bytes
    ],
)
def test_bad_tagged_sections(section: bytes) -> None:
    wire = FetchRequest().encode(15)[:-1] + section
    with pytest.raises(MalformedMessageError):
        FetchRequest.decode(wire, 15)


def test_unknown_tags_cannot_travel_in_versions_without_tags() -> None:
    with pytest.raises(UnsupportedFieldError, match="unknown_tagged_fields"):
        HeartbeatRequest(unknown_tagged_fields=((1, b""),)).encode(3)


def test_one_tag_cannot_travel_twice() -> None:
    with pytest.raises(EncodeError, match="tag 0 twice"):
        FetchRequest(cluster_id="c", unknown_tagged_fields=((0, b""),)).encode(15)


class Inner(Struct):
    value: int = int32("0+", 5)


class Everything(Message, versions="0-1", flexible="1+"):
    """Each kind as a tagged field, and the kinds that Kafka's own messages do not combine with arrays."""

    flags: list[bool] = array(bool_, "0+")
    ports: list[int] = array(uint16, "0+")
    rates: list[float] = array(float64, "0+")
    ids: list[bytes] = array(uuid, "0+")
    blobs: list[bytes] = array(bytes_, "0+")
    tagged_bool: bool = bool_("1+", tag=0, tagged="1+")
    tagged_int8: int = int8("1+", tag=1, tagged="1+")
    tagged_int16: int = int16("1+", tag=2, tagged="1+")
    tagged_int64: int = int64("1+", tag=3, tagged="1+")
    tagged_float: float = float64("1+", tag=4, tagged="1+")
    tagged_uuid: bytes = uuid("1+", tag=5, tagged="1+")
    tagged_string: str | None = string("1+", "x", nullable="1+", tag=6, tagged="1+")
    tagged_bytes: bytes | None = bytes_("1+", nullable="1+", tag=7, tagged="1+")
    tagged_array: list[int] | None = array(int32, "1+", nullable="1+", tag=8, tagged="1+")
    tagged_struct: Inner = struct_(Inner, "1+", tag=9, tagged="1+")
    tagged_null: Inner | None = struct_(Inner, "1+", nullable="1+", tag=10, tagged="1+")
    plain_struct: Inner = struct_(Inner, "0+")
    plain_null: Inner | None = struct_(Inner, "0+", None, nullable="0+")


FULL: dict[str, Any] = {
    "flags": [True, False],
    "ports": [1, 65535],
    "rates": [0.5],
    "ids": [bytes(range(16))],
    "blobs": [b"", b"ab"],
    "tagged_bool": True,
    "tagged_int8": -1,
    "tagged_int16": 300,
    "tagged_int64": 2**40,
    "tagged_float": 0.25,
    "tagged_uuid": bytes(range(16)),
    "tagged_string": None,
    "tagged_bytes": b"abc",
    "tagged_array": None,
    "tagged_struct": Inner(value=6),
    "tagged_null": None,
    "plain_struct": Inner(value=7),
    "plain_null": Inner(value=8),
}


def test_every_kind_can_be_tagged() -> None:
    for message in (Everything(), Everything(**FULL), Everything(tagged_null=Inner(value=9), tagged_string="")):
        assert Everything.decode(message.encode(1), 1) == message
    wire = Everything(**FULL).encode(1)
    # A nullable structure in a tagged field: size 1, and 0 for null (Kafka writes 1 before one that is there).
    assert wire.endswith(b"\x09\x05\x00\x00\x00\x06\x00\x0a\x01\x00")
    assert Everything(tagged_null=Inner(value=9)).encode(1).endswith(b"\x01\x0a\x06\x01\x00\x00\x00\x09\x00")


def test_any_byte_but_zero_is_true() -> None:
    wire = MetadataRequest(topics=[], allow_auto_topic_creation=True).encode(4)
    assert MetadataRequest.decode(wire[:-1] + b"\x07", 4).allow_auto_topic_creation is True
    assert MetadataRequest.decode(wire[:-1] + b"\x00", 4).allow_auto_topic_creation is False


# Versions


@pytest.mark.parametrize("version", [-1, 5])
def test_unknown_versions(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match="HeartbeatRequest has versions 0-4"):
        HeartbeatRequest().encode(version)
    with pytest.raises(UnsupportedVersionError):
        HeartbeatRequest.decode(b"", version)


def test_absent_fields_have_their_defaults() -> None:
    request = InitProducerIdRequest.decode(InitProducerIdRequest(transactional_id="t").encode(0), 0)
    assert (request.producer_id, request.producer_epoch) == (-1, -1)


def test_a_set_field_is_not_dropped_silently() -> None:
    with pytest.raises(UnsupportedFieldError, match=r"InitProducerIdRequest.producer_id .* version 2 has no"):
        InitProducerIdRequest(producer_id=5).encode(2)
    with pytest.raises(UnsupportedFieldError, match="group_instance_id"):
        HeartbeatRequest(group_instance_id="i").encode(2)


def test_an_ignorable_field_is_dropped() -> None:
    assert ApiVersionsResponse(throttle_time_ms=5).encode(0) == ApiVersionsResponse().encode(0)


# Nulls, sizes and types


def test_null_is_refused_where_it_is_not_allowed() -> None:
    with pytest.raises(EncodeError, match="HeartbeatRequest v4: group_id must not be null"):
        HeartbeatRequest(group_id=None).encode(4)  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match=r"topics must not be null"):
        MetadataRequest(topics=None).encode(0)
    for version, wire in ((4, b"\x00"), (3, b"\xff\xff")):
        with pytest.raises(MalformedMessageError, match="group_id must not be null"):
            HeartbeatRequest.decode(wire + bytes(20), version)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"flags": [None]}, r"flags\[0\] = None is no bool"),
        ({"ports": [65536]}, r"ports\[0\] = 65536 is no uint16"),
        ({"ids": [b"short"]}, "ids must be 16 bytes"),
        ({"tagged_uuid": b"short"}, "tagged_uuid must be 16 bytes"),
        ({"blobs": ["text"]}, r"blobs\[0\] must be bytes"),
        ({"tagged_int8": 128}, "tagged_int8 = 128 is no int8"),
        ({"plain_struct": None}, "plain_struct must not be null"),
        ({"plain_struct": 5}, "plain_struct must be a Inner, not int"),
        ({"tagged_string": 5}, "tagged_string must be a str"),
        ({"tagged_string": "x" * 32768}, "string of 32768 bytes is too long"),
        ({"tagged_string": "\ud800"}, "tagged_string is no text"),
        ({"flags": 5}, "flags must be a list, not int"),
    ],
)
def test_what_cannot_travel_says_why(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(EncodeError, match=reason):
        Everything(**values).encode(1)


def test_long_strings_are_refused_in_both_encodings() -> None:
    for version in (3, 4):
        HeartbeatRequest(group_id="x" * 32767).encode(version)
        with pytest.raises(EncodeError, match="32768 bytes"):
            HeartbeatRequest(group_id="x" * 32768).encode(version)
    long = b"\x81\x80\x02" + b"x" * 32768
    with pytest.raises(MalformedMessageError, match="string of 32768 bytes"):
        HeartbeatRequest.decode(long + bytes(20), 4)


# Records


class Region:
    """A stand-in for a slice of a log file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self) -> bytes:
        return self._data


def fetch_response(*values: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=value) for index, value in enumerate(values)]
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"i" * 16, partitions=partitions)])


def test_records_are_parts_of_their_own() -> None:
    region, view = Region(b"file"), memoryview(b"view")
    parts = fetch_response(region, None, b"", view).encode_parts(17)
    assert parts[1] is region
    assert parts[3] is view
    assert [type(part) for part in parts] == [bytes, Region, bytes, memoryview, bytes]
    whole = fetch_response(b"file", None, b"", b"view").encode(17)
    assert fetch_response(region, None, b"", view).encode(17) == whole
    assert b"".join(part.read() if isinstance(part, Region) else bytes(part) for part in parts) == whole  # type: ignore[arg-type]


def test_records_that_end_a_message_leave_no_empty_part() -> None:
    """Version 11 has no tagged sections behind the records."""
    region = Region(b"file")
    parts = fetch_response(region).encode_parts(11)
    assert parts[-1] is region
    assert len(parts) == 3 - 1


def test_decoded_records_are_views_of_the_frame() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"0123")])]
    )
    frame = bytearray(request.encode(9))
    records = ProduceRequest.decode(memoryview(frame), 9).topic_data[0].partition_data[0].records
    records[:2] = b"ab"
    assert b"ab23" in frame


def test_decoded_bytes_are_copies() -> None:
    frame = bytearray(EnvelopeRequest(request_data=b"0123").encode(0))
    decoded = EnvelopeRequest.decode(frame, 0)
    frame[:] = bytes(len(frame))
    assert decoded.request_data == b"0123"


# Counts


def test_absurd_counts_build_nothing() -> None:
    with pytest.raises(MalformedMessageError, match="topics passes the end"):
        MetadataRequest.decode(struct.pack(">i", 0x7FFFFFFF) + bytes(100), 4)
    with pytest.raises(MalformedMessageError, match="topics passes the end"):
        MetadataRequest.decode(b"\xff\xff\xff\xff\x07" + bytes(100), 9)


def test_sources_can_be_read() -> None:
    assert "def decode(buf, pos):" in codec.decoder_source(HeartbeatRequest, 4)
    assert "def encode(o):" in codec.encoder_source(HeartbeatRequest, 4)
