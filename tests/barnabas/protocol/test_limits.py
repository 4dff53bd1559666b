"""What a client sends has a bound on its elements, whatever their kind; what nodes send has none."""

from __future__ import annotations

import pytest

from barnabas.protocol import plans
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.limits import ELEMENTS_MAX, SMALL_BYTES, TAGS_MAX, UNBOUNDED, elements_max, request_bytes_max
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.primitives import encode_uvarint
from barnabas.protocol.schema import Message

OVER = "more than 1000000 elements in one message"


def decode_both(cls: type[Message], version: int, body: bytes) -> Message:
    """What it decodes to, by the generated code; what is compiled, if anything, says the same."""
    flexible = version >= cls.FLEXIBLE_FROM
    message, end = plans.make_python_decoder(cls, version, flexible)(body, 0)
    assert plans.make_decoder(cls, version, flexible)(memoryview(body), 0) == (message, end)
    return message


def refused_by_both(cls: type[Message], version: int, body: bytes, match: str) -> None:
    flexible = version >= cls.FLEXIBLE_FROM
    for decode in (plans.make_python_decoder(cls, version, flexible), plans.make_decoder(cls, version, flexible)):
        with pytest.raises(MalformedMessageError, match=match):
            decode(memoryview(body), 0)


def offset_fetch(*counts: int) -> bytes:
    """OffsetFetch v6 with topics of so many partitions."""
    topics = b"".join(b"\x02t" + encode_uvarint(count + 1) + bytes(4 * count) + b"\0" for count in counts)
    return b"\x02g" + encode_uvarint(len(counts) + 1) + topics + b"\0"


def test_the_elements_of_all_arrays_count_together() -> None:
    cls = request_class(9)
    largest = decode_both(cls, 6, offset_fetch(400_000, ELEMENTS_MAX - 400_002))
    assert sum(len(topic.partition_indexes) for topic in largest.topics) == ELEMENTS_MAX - 2
    refused_by_both(cls, 6, offset_fetch(400_000, ELEMENTS_MAX - 400_001), OVER)


def test_names_and_structures_of_nothing_count() -> None:
    count = ELEMENTS_MAX + 1
    refused_by_both(request_class(20), 5, encode_uvarint(count + 1) + b"\1" * count + bytes(5), OVER)
    topic = b"\1\0\0\0\0\0\0\1\1\0"
    refused_by_both(request_class(19), 7, encode_uvarint(count + 1) + topic * count + bytes(6), OVER)


def test_unknown_tagged_fields_count() -> None:
    """Of one structure, and of all together."""

    def tags(count: int) -> bytes:
        return encode_uvarint(count) + b"".join(encode_uvarint(100 + tag) + b"\0" for tag in range(count))

    cls = request_class(12)
    body = b"\x02g\0\0\0\1\x02m\0"
    assert len(decode_both(cls, 4, body + tags(TAGS_MAX)).unknown_tagged_fields) == TAGS_MAX
    refused_by_both(cls, 4, body + tags(TAGS_MAX + 1), "1001 tagged fields in one structure")
    topic = b"\2t" + b"\1" + tags(TAGS_MAX)
    refused_by_both(request_class(9), 6, b"\2g" + encode_uvarint(1_001) + topic * 1_000 + b"\0", OVER)


def test_only_requests_of_clients_are_bounded() -> None:
    assert elements_max(request_class(3)) == ELEMENTS_MAX
    assert [elements_max(request_class(key)) for key in (4, 5, 6)] == [UNBOUNDED] * 3
    assert elements_max(response_class(3)) == UNBOUNDED


@pytest.mark.parametrize(
    ("keys", "for_all", "for_clients"),
    [
        ({0, 11, 14, 58}, UNBOUNDED, UNBOUNDED),
        ({4, 5, 6}, UNBOUNDED, SMALL_BYTES),
        ({1, 3, 8, 18, 19, 44}, 1 << 24, 1 << 24),
    ],
)
def test_the_bytes_of_a_request(keys: set[int], for_all: int, for_clients: int) -> None:
    for key in keys:
        assert request_bytes_max(key, 1 << 24, is_for_clients=False) == for_all
        assert request_bytes_max(key, 1 << 24, is_for_clients=True) == for_clients
