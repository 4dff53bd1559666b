"""Removed versions of all APIs: rows.py, raising.py and others.py."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import NO_REPLY, Close, Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.settings.config_describer import Source
from barnabas.broker.wiring.removed.others import TO_CURRENT
from barnabas.broker.wiring.removed.raising import to_current
from barnabas.broker.wiring.removed.rows import with_removed_versions
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_request_header, response_parts
from barnabas.protocol.messages import k08_offset_commit as commit_wire
from barnabas.protocol.messages import k09_offset_fetch as fetch_wire
from barnabas.protocol.messages import k32_describe_configs as configs_wire
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicResult
from barnabas.protocol.messages.k58_envelope import EnvelopeResponse
from barnabas.protocol.removed import (
    REMOVED,
    highest_removed,
    k08_offset_commit,
    removed_request,
    removed_response,
)
from barnabas.protocol.schema import Message
from tests.support.broker.broker_rig import BrokerRig, state
from tests.support.broker.parked import Waiting

CLIENT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1", is_for_clients=True)
NODE = RequestContext("INTERNAL", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-2")
BY_MESSAGE = sorted(REMOVED - {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS})


class Handler:
    """An API that keeps what it was asked, and ends as it is told."""

    def __init__(self, key: int, ends: Any = None) -> None:
        self.seen: list[tuple[int, Message]] = []
        self.frames: list[bytes] = []
        self.ends = Reply(response_class(key)()) if ends is None else ends
        self.row = with_removed_versions(Api(key, "Name", TABLE[key].versions, self._handle))

    def _handle(self, _services: Any, request: Request) -> Any:
        self.seen.append((request.version, request.message))
        self.frames.append(bytes(request.buffer or b""))
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends

    def ask(self, message: Message, version: int, context: RequestContext = CLIENT) -> tuple[Request, Any]:
        key = message.API_KEY
        decoded = self.row.decoder(version)(message.encode(version), 0)[0]  # type: ignore[misc]
        request = Request.for_message(RequestHeader(key, version, 7, "old"), decoded, context)
        return request, self.row.handle(None, request)


def asked(key: int, message: Any, version: int, response: Any = None) -> tuple[Any, Any]:
    """What the API of today is asked, and what the client gets, both over the wire."""
    handler = Handler(key, None if response is None else Reply(response))
    _, answer = handler.ask(message, version)
    ((raised, seen),) = handler.seen
    assert raised == TABLE[key].versions[0]
    return seen, removed_response(key).decode(answer.message.encode(version), version)


@pytest.mark.parametrize("key", BY_MESSAGE, ids=lambda key: key.name)
def test_a_removed_version_is_carried_out_as_the_lowest_of_today(key: int) -> None:
    low = TABLE[key].versions[0]
    for version in range(low):
        handler = Handler(key)
        request, answer = handler.ask(removed_request(key)(), version)
        assert request.header.api_version == version
        assert handler.seen == [(low, request_class(key)())]
        header, start = decode_request_header(handler.frames[0])
        assert header == RequestHeader(key, low, 7, "old")
        assert request_class(key).decode(handler.frames[0], low, start) == request_class(key)()
        assert answer.message.encode(version) == removed_response(key)().encode(version)


@pytest.mark.parametrize("key", sorted(REMOVED), ids=lambda key: key.name)
def test_versions_of_today_are_as_they_were(key: int) -> None:
    handler = Handler(key)
    assert handler.row.versions == (0, TABLE[key].versions[1])
    for version in TABLE[key].versions:
        _, answer = handler.ask(request_class(key)(), version)
        assert answer is handler.ends
    low = TABLE[key].versions[0]
    assert handler.row.decoder is not None
    assert handler.row.decoder(low) == request_class(key).decoder(low)
    assert isinstance(handler.ask(removed_request(key)(), highest_removed(key), NODE)[1], Close)


def test_an_api_that_lost_no_version_keeps_its_row() -> None:
    assert with_removed_versions(TABLE[ApiKey.METADATA]) is TABLE[ApiKey.METADATA]


@pytest.mark.parametrize("key", sorted(REMOVED), ids=lambda key: key.name)
def test_an_error_of_the_whole_request_has_its_version(key: int) -> None:
    failed = Handler(key).row.error_response
    assert failed is not None
    for version in range(TABLE[key].versions[0] + 1):
        if version <= highest_removed(key):
            response = failed(removed_request(key)(), version, ErrorCode.UNKNOWN_SERVER_ERROR, None)
            assert type(response) is removed_response(key)
        else:
            response = failed(request_class(key)(), version, ErrorCode.UNKNOWN_SERVER_ERROR, None)
            assert type(response) is response_class(key)
        response.encode(version)


def filled(cls: Any, version: int) -> Any:
    """A structure with an element in each list of a version."""
    made = cls()
    for field in cls.FIELDS:
        if not field.is_present(version):
            continue
        if field.kind == "array":
            is_plain = isinstance(field.element, str)
            element = ("x" if field.element == "string" else 1) if is_plain else filled(field.element, version)
            setattr(made, field.name, [element])
    return made


@pytest.mark.parametrize("key", sorted(REMOVED), ids=lambda key: key.name)
def test_an_error_names_what_the_request_named(key: int) -> None:
    """Whether it comes before the request is raised, as from the authorizer, or after."""
    failed = Handler(key).row.error_response
    assert failed is not None
    for version in range(highest_removed(key) + 1):
        message = filled(removed_request(key), version)
        first, second = (
            failed(each, version, ErrorCode.GROUP_AUTHORIZATION_FAILED, None).encode(version)
            for each in (message, TO_CURRENT.get(key, to_current)(message))
        )
        assert first == second


def create_topics() -> Message:
    message: Any = removed_request(ApiKey.CREATE_TOPICS)(
        topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
    )
    return message  # type: ignore[no-any-return]


def test_the_header_is_back_however_the_request_ends() -> None:
    key = ApiKey.CREATE_TOPICS
    for ends in (NO_REPLY, Close("reason")):
        request, answer = Handler(key, ends).ask(create_topics(), 0)
        assert (answer, request.header.api_version) == (ends, 0)
    for error in (ApiError(ErrorCode.INVALID_REQUEST), RuntimeError("a bug")):
        handler = Handler(key, error)
        request = Request.for_message(RequestHeader(key, 0, 7, "old"), create_topics(), CLIENT)
        with pytest.raises(type(error)):
            handler.row.handle(None, request)
        assert request.header.api_version == 0


def test_an_answer_after_a_wait() -> None:
    key, deferred = ApiKey.CREATE_TOPICS, Deferred()
    request, parked = Handler(key, Park(deferred)).ask(create_topics(), 0)
    deferred.bind(lambda _operation: None, request)
    assert request.header.api_version == 2
    deferred.complete(
        Reply(response_class(key)(topics=[CreatableTopicResult(name="t", error_code=3, error_message="no")]), 9)
    )
    answer = parked.answer()
    assert (request.header.api_version, answer.throttle_time_ms) == (0, 9)
    assert answer.message.encode(0) == bytes.fromhex("00000001 0001 74 0003")


def test_an_error_after_a_wait() -> None:
    class Failing(Deferred):
        def response(self) -> Any:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)

    request, parked = Handler(ApiKey.CREATE_TOPICS, Park(Failing())).ask(create_topics(), 1)
    with pytest.raises(ApiError):
        parked.answer()
    assert request.header.api_version == 1


def test_the_controllers_answer_comes_after_the_time_is_up() -> None:
    """It is in the version that was forwarded, though the request has its own header again."""
    rig = BrokerRig()
    rig.push({"t": [state(1)]})
    row = with_removed_versions(TABLE[ApiKey.CREATE_TOPICS])
    request = Request.for_message(RequestHeader(ApiKey.CREATE_TOPICS, 0, 7, "old"), create_topics(), CLIENT)
    waiting = Waiting(request, rig.manager.complete_delayed)
    waiting.wait(row.handle(rig.services, request))  # type: ignore[arg-type]
    rig.advance_ms(60_000)
    assert waiting.response is not None
    assert waiting.response.encode(0) == bytes.fromhex("00000001 0001 74 0007")
    assert request.header.api_version == 0
    ((_, on_done),) = rig.channel.sent
    header, response = RequestHeader(ApiKey.CREATE_TOPICS, 2, 7, "old"), response_class(ApiKey.CREATE_TOPICS)()
    frame = b"".join(response_parts(header, response))  # type: ignore[arg-type]
    on_done(EnvelopeResponse(response_data=frame[4:]))
    rig.close()


# What the messages of others.py become


def test_offset_commit() -> None:
    partition = k08_offset_commit.OffsetCommitRequestPartition(
        partition_index=3, committed_offset=7, commit_timestamp=99, committed_metadata="m"
    )
    topic = k08_offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])
    message = k08_offset_commit.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=4, member_id="me", topics=[topic]
    )
    wanted = commit_wire.OffsetCommitRequestPartition(partition_index=3, committed_offset=7, committed_metadata="m")
    raised = commit_wire.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=4,
        member_id="me",
        topics=[commit_wire.OffsetCommitRequestTopic(name="t", partitions=[wanted])],
    )
    assert asked(ApiKey.OFFSET_COMMIT, message, 1)[0] == raised
    partition.commit_timestamp = -1
    raised.generation_id_or_member_epoch, raised.member_id = -1, ""
    assert asked(ApiKey.OFFSET_COMMIT, message, 0)[0] == raised, "v0 knows no members"


def test_offset_fetch() -> None:
    rows = [
        fetch_wire.OffsetFetchResponsePartition(
            partition_index=i, committed_offset=offset, metadata="", error_code=code
        )
        for i, (offset, code) in enumerate([(7, 0), (-1, 0), (-1, 16)])
    ]
    response = fetch_wire.OffsetFetchResponse(topics=[fetch_wire.OffsetFetchResponseTopic(name="t", partitions=rows)])
    _, got = asked(ApiKey.OFFSET_FETCH, removed_request(ApiKey.OFFSET_FETCH)(group_id="g"), 0, response)
    codes = [(row.committed_offset, row.error_code) for row in got.topics[0].partitions]
    assert codes == [(7, 0), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (-1, ErrorCode.NOT_COORDINATOR)]


def test_describe_configs() -> None:
    entries = [
        configs_wire.DescribeConfigsResourceResult(name=name, value="v", read_only=True, config_source=source)
        for name, source in (("a", Source.DEFAULT), ("b", Source.TOPIC))
    ]
    result = configs_wire.DescribeConfigsResult(error_message=None, resource_type=2, resource_name="t", configs=entries)
    response = configs_wire.DescribeConfigsResponse(throttle_time_ms=5, results=[result])
    _, got = asked(ApiKey.DESCRIBE_CONFIGS, removed_request(ApiKey.DESCRIBE_CONFIGS)(), 0, response)
    assert [(c.name, c.value, c.read_only, c.is_default) for c in got.results[0].configs] == [
        ("a", "v", True, True),
        ("b", "v", True, False),
    ]
    assert (got.throttle_time_ms, got.results[0].resource_name) == (5, "t")


def test_acls_are_literal() -> None:
    seen, _ = asked(ApiKey.DESCRIBE_ACLS, removed_request(ApiKey.DESCRIBE_ACLS)(resource_type_filter=2), 0)
    assert (seen.resource_type_filter, seen.pattern_type_filter) == (2, 3)
