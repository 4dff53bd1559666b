from __future__ import annotations

import io
import random
import struct

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer

from barnabas.protocol import headers
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import EncodeError, MalformedMessageError
from barnabas.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_request_header,
    request_header_version,
    response_header_version,
    response_parts,
)
from barnabas.protocol.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.k18_api_versions import ApiVersionsResponse

HEADERS = [
    (RequestHeader(12, 3, 7, "cli"), b"\x00\x0c\x00\x03\x00\x00\x00\x07\x00\x03cli"),
    (RequestHeader(12, 4, 7, "cli"), b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x03cli\x00"),
    (RequestHeader(12, 4, -1, None), b"\x00\x0c\x00\x04\xff\xff\xff\xff\xff\xff\x00"),
    (RequestHeader(12, 4, 7, "", ((0, b"x"),)), b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x00\x01\x00\x01x"),
    (RequestHeader(7, 0, 7), b"\x00\x07\x00\x00\x00\x00\x00\x07"),
    (RequestHeader(7, 1, 7, None), b"\x00\x07\x00\x01\x00\x00\x00\x07\xff\xff"),
]


@pytest.mark.parametrize(("header", "wire"), HEADERS)
def test_request_headers(header: RequestHeader, wire: bytes) -> None:
    assert encode_request_header(header) == wire
    assert decode_request_header(wire + b"body") == (header, len(wire))
    assert decode_request_header(memoryview(b"12" + wire + b"body"), 2) == (header, 2 + len(wire))


@pytest.mark.parametrize(("header", "wire"), HEADERS)
def test_request_headers_cut_short(header: RequestHeader, wire: bytes) -> None:
    for size in range(len(wire)):
        with pytest.raises(MalformedMessageError):
            decode_request_header(wire[:size])


@pytest.mark.skipif(headers._read_usual is None, reason="nothing is compiled here: see `make compiled`")
@pytest.mark.parametrize("key", [*ApiKey, 93, 5000])
def test_c_reads_headers_as_python_does_or_leaves_them_to_it(key: int) -> None:
    chance = random.Random(key)
    clients = [(-1, b""), (0, b""), (3, b"cli"), (2, "é".encode()), (1, b"\xff"), (9, b"cut")]
    for version in [*range(20), -1]:
        for length, client in clients:
            wire = struct.pack(">hhih", key, version, chance.randint(-(2**31), 2**31 - 1), length) + client
            wire += chance.choice([b"\0", b"\0\0\0\0", b"\1\0\1x", b""])
            for buffer in (wire, wire[: chance.randrange(len(wire))]):
                found = headers._read_usual(memoryview(b"12" + buffer), 2, headers._FLEXIBLE_FROM_TABLE)
                if found is not None:
                    expected, end = headers._decode_request_header(buffer, 0)
                    assert (RequestHeader(*found[:4]), found[4]) == (expected, end + 2)


@pytest.mark.skipif(headers._read_usual is None, reason="nothing is compiled here: see `make compiled`")
@pytest.mark.parametrize(("header", "wire"), HEADERS)
def test_c_reads_usual_headers(header: RequestHeader, wire: bytes) -> None:
    is_unusual = bool(header.unknown_tagged_fields) or header.api_key == ApiKey.CONTROLLED_SHUTDOWN
    assert (headers._read_usual(wire, 0, headers._FLEXIBLE_FROM_TABLE) is None) == is_unusual


@pytest.mark.parametrize(("version", "kio_class"), [(3, KioHeaderV1), (4, KioHeaderV2)])
def test_request_headers_against_kio(version: int, kio_class: type) -> None:
    buffer = io.BytesIO()
    theirs = kio_class(request_api_key=12, request_api_version=version, correlation_id=9, client_id="client")
    entity_writer(kio_class)(buffer, theirs)
    assert encode_request_header(RequestHeader(12, version, 9, "client")) == buffer.getvalue()


def test_header_versions() -> None:
    assert [request_header_version(ApiKey.CONTROLLED_SHUTDOWN, version) for version in range(4)] == [0, 1, 1, 2]
    assert [request_header_version(ApiKey.API_VERSIONS, version) for version in (0, 2, 3, 4)] == [1, 1, 2, 2]
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in (0, 2, 3, 4)] == [0, 0, 0, 0]
    assert [response_header_version(ApiKey.FETCH, version) for version in (11, 12)] == [0, 1]
    assert {request_header_version(ApiKey.SASL_HANDSHAKE, version) for version in (0, 1)} == {1}


def test_an_unknown_version_of_a_known_api_has_a_readable_header() -> None:
    """The broker has to answer an ApiVersions request of any version (KIP-511)."""
    header, _ = decode_request_header(b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x03cli\x00")
    assert header == RequestHeader(18, 99, 7, "cli")


@pytest.mark.parametrize("key", [-1, 93, 0x474F])
def test_unknown_keys(key: int) -> None:
    with pytest.raises(MalformedMessageError, match=f"unknown API key {key}"):
        decode_request_header(struct.pack(">hhih", key, 0, 1, -1))


def test_client_ids() -> None:
    with pytest.raises(MalformedMessageError, match="client_id passes the end"):
        decode_request_header(b"\x00\x0c\x00\x03\x00\x00\x00\x07\x7f\xffcli")
    latin_1, _ = decode_request_header(b"\x00\x0c\x00\x03\x00\x00\x00\x07\x00\x04B\xfcro")
    assert latin_1.client_id == "B\N{REPLACEMENT CHARACTER}ro"
    with pytest.raises(EncodeError):
        encode_request_header(RequestHeader(12, 3, 7, "x" * 32768))


def test_whole_requests() -> None:
    request = HeartbeatRequest(group_id="g")
    frame = encode_request(RequestHeader(12, 4, 7, "cli"), request)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    header, offset = decode_request_header(frame, 4)
    assert (header.correlation_id, HeartbeatRequest.decode(frame, 4, offset)) == (7, request)


@pytest.mark.parametrize("version", [3, 4])
def test_whole_responses(version: int) -> None:
    response = HeartbeatResponse(error_code=27)
    frame = b"".join(bytes(part) for part in response_parts(RequestHeader(12, version, 7), response))  # type: ignore[arg-type]
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    correlation_id, offset = decode_response_header(frame, 12, version, 4)
    assert (correlation_id, HeartbeatResponse.decode(frame, version, offset)) == (7, response)


@pytest.mark.parametrize("version", [3, 4])
def test_responses_of_one_kind_are_written_alike(version: int) -> None:
    """The first one makes the framer that writes the next ones, until one is unusual."""
    header = RequestHeader(12, version, -7)
    response = HeartbeatResponse(error_code=27, throttle_time_ms=8)
    encoded = response.encode(version)
    first = response_parts(header, response, encoded)
    assert response_parts(header, response) == first
    assert response_parts(header, response) == first
    response.error_code = IntSubclass(27)
    response.unknown_tagged_fields = ((3, b"x"),) if version == 4 else ()
    unusual = response_parts(header, response)
    assert unusual == response_parts(header, response, response.encode(version))
    response.unknown_tagged_fields = ()
    assert response_parts(header, response) == first


def test_unknown_versions_of_api_versions_leave_nothing_behind() -> None:
    for version in (3, 30_000, 30_001):
        response_parts(RequestHeader(18, version, 7), ApiVersionsResponse())
    assert not [row for row in headers._framers if row >> 16 == 18]


class IntSubclass(int):
    """As an error code often is."""


class Region:
    """Stands for a slice of a log file."""

    size = 1000


def test_the_size_counts_file_regions() -> None:
    region = Region()
    partition = PartitionData(records=region)
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    parts = response_parts(RequestHeader(1, 17, 7), response)
    assert parts[1] is region
    head = parts[0]
    assert isinstance(head, bytes)
    whole = sum(part.size if isinstance(part, Region) else len(part) for part in parts)  # type: ignore[arg-type]
    assert struct.unpack_from(">i", head) == (whole - 4,)


def test_an_api_versions_answer_to_an_unknown_version_is_of_version_0() -> None:
    (frame,) = response_parts(RequestHeader(18, 99, 7), ApiVersionsResponse(error_code=35))
    assert frame == b"\x00\x00\x00\x0a\x00\x00\x00\x07\x00\x23\x00\x00\x00\x00"


def test_response_headers_skip_tags() -> None:
    assert decode_response_header(b"\x00\x00\x00\x07\x01\x00\x02ab|body", 12, 4) == (7, 9)
    with pytest.raises(MalformedMessageError):
        decode_response_header(b"\x00\x00\x00\x07", 12, 4)
