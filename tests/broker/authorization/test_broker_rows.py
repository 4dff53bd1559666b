"""THE table of rights of a broker: each row with the right present, and taken away.

Topics t and u, groups g and h, transactional ids x and y: only the second of each pair is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.broker_rows import ROWS
from barnabas.broker.authorization.row import Answer, Row
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.parking import Park
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import (
    k01_fetch,
    k03_metadata,
    request_class,
)
from barnabas.security.values import ANY_NAME
from tests.broker.authorization.kit import authorizer, lacking, make_request
from tests.broker.authorization.scenarios import (
    ALTERNATIVES,
    ELSEWHERE,
    FIRST,
    SCENARIOS,
    SECOND,
    Found,
    MemoryKit,
    created_by_metadata,
    idempotent,
)


def row_id(row: Row) -> str:
    return f"{row.key.name}-{row.operation.name}-{row.resource.name}-{row.condition}"


def refusals(row: Row, found: Found) -> list[str]:
    """The names that a row refuses."""
    if row.answer is Answer.LEFT_OUT:
        names = [name for name in (FIRST.get(row.resource), SECOND[row.resource]) if name is not None]
        return [name for name in names if name not in found]
    return [name for name, code in found.items() if code == row.error]


@pytest.fixture
def kit() -> Iterator[MemoryKit]:
    made = MemoryKit()
    yield made
    made.close()


@pytest.mark.parametrize("row", SCENARIOS, ids=row_id)
def test_an_item_is_refused_without_its_right_and_the_others_are_not(row: Row, kit: MemoryKit) -> None:
    kit.by = lacking(row, name=SECOND[row.resource])
    assert refusals(row, SCENARIOS[row](kit)) == [SECOND[row.resource]]


@pytest.mark.parametrize("row", SCENARIOS, ids=row_id)
def test_no_item_is_refused_with_its_right(row: Row, kit: MemoryKit) -> None:
    kit.by = lacking()
    assert refusals(row, SCENARIOS[row](kit)) == []


@pytest.mark.parametrize("row", ALTERNATIVES, ids=row_id)
def test_a_right_has_an_alternative(row: Row, kit: MemoryKit) -> None:
    other, scenario = ALTERNATIVES[row]
    kit.by = lacking(row, name=SECOND[row.resource])
    assert refusals(row, scenario(kit)) == []
    kit.by = lacking(other)
    assert refusals(row, scenario(kit)) == []
    kit.by = lacking(row, other, name=SECOND[row.resource])
    assert refusals(row, scenario(kit)) == [SECOND[row.resource]]


def test_a_missing_topic_is_created_by_whom_may_create_it_or_any() -> None:
    kit = MemoryKit()
    kit.broker.config.auto_create_topics_enable = True
    row, other = rights.METADATA_CREATE_TOPIC, rights.METADATA_CREATE_ANY
    unknown, refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, row.error
    for by, expected in (
        (lacking(row, name="other"), {"t": unknown, "u": unknown}),
        (lacking(other), {"t": unknown, "u": unknown}),
        (lacking(row, other, name="other"), {"t": unknown, "u": refused}),
    ):
        kit.by = by
        assert created_by_metadata(kit) == expected
    kit.close()


# -- rows that the dispatcher asks

WHOLE = [row for row in ROWS if row.asks is not None and row.answer is Answer.REQUEST]
NAMES = {"group_id": "g", "transactional_id": "x"}
#: Versions and fields with which a row applies.
APPLIES: dict[Row, tuple[int, dict[str, Any]]] = {
    rights.INIT_TWO_PHASE: (6, {"enable2_pc": True}),
    rights.INIT_ANY_TOPIC: (4, {"transactional_id": None}),
    rights.ADD_PARTITIONS_OF_CLIENTS: (4, {}),
    rights.FIND_SHARE: (6, {"key_type": 2}),
    rights.SYNC_GROUP: (5, {"protocol_type": "p", "protocol_name": "n"}),
}
#: The rights that stand for a row.
STANDS_FOR = {
    rights.INIT_ANY_TOPIC: rights.INIT_IDEMPOTENT,
    rights.WRITE_MARKERS: rights.WRITE_MARKERS_OF_ADMIN,
}


def whole_request(row: Row) -> Any:
    message = request_class(row.key)
    api = TABLE.get(row.key)
    version, fields = APPLIES.get(row, (message.MAX_VERSION if api is None else api.versions[1], {}))
    if row.key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return make_request(message(), version)
    names = {name: text for name, text in NAMES.items() if hasattr(message(), name)}
    return make_request(message(**{**names, **fields}), version)


@pytest.mark.parametrize("row", WHOLE, ids=row_id)
def test_a_request_is_refused_without_its_right(row: Row) -> None:
    request, api = whole_request(row), SimpleNamespace(key=row.key, name=row.key.name)
    stand_in = [STANDS_FOR[row]] if row in STANDS_FOR else []
    lacking(*stand_in).admit(api, request)  # type: ignore[arg-type]
    if stand_in:
        lacking(row).admit(api, request)  # type: ignore[arg-type]
    with pytest.raises(ApiError) as refused:
        lacking(row, *stand_in).admit(api, request)  # type: ignore[arg-type]
    assert refused.value.code == row.error


@pytest.mark.parametrize("row", [row for row in WHOLE if row.resource in FIRST and not row.is_any], ids=row_id)
def test_the_right_is_asked_for_the_resource_that_the_request_names(row: Row) -> None:
    request, api = whole_request(row), SimpleNamespace(key=row.key, name=row.key.name)
    lacking(row, name="other").admit(api, request)  # type: ignore[arg-type]
    with pytest.raises(ApiError):
        lacking(row, name=FIRST[row.resource]).admit(api, request)  # type: ignore[arg-type]


def test_a_sync_without_protocol_is_refused_for_that_first(kit: MemoryKit) -> None:
    from barnabas.protocol.messages.k14_sync_group import SyncGroupRequest

    kit.by = lacking(rights.SYNC_GROUP)
    answer = kit.ask_groups(SyncGroupRequest(group_id="g"), 5)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_every_row_is_tested() -> None:
    tested = {*SCENARIOS, *ALTERNATIVES, *(other for other, _ in ALTERNATIVES.values()), *WHOLE, *STANDS_FOR.values()}
    rest = set(ROWS) - tested - ELSEWHERE - {rights.METADATA_CREATE_ANY, rights.METADATA_CREATE_TOPIC}
    assert sorted(map(row_id, rest)) == []


def test_an_idempotent_producer_needs_the_right_to_some_topic(kit: MemoryKit) -> None:
    kit.by = authorizer([], default=False)
    assert idempotent(kit) == {"any": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_metadata_never_tells_whether_a_hidden_topic_exists(kit: MemoryKit) -> None:
    """The answers about a topic that exists and one that does not are the same but for the name."""
    kit.by = authorizer([], default=False)

    def told(name: str) -> Any:
        message = k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name=name)])
        (topic,) = kit.ask(message, 12).topics
        topic.name = ANY_NAME
        return topic

    assert told("t") == told("nowhere")
    assert told("t").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_an_unknown_topic_id_is_unknown_whatever_the_rights(kit: MemoryKit) -> None:
    kit.by = authorizer([], default=False)
    known, unknown = (
        kit.ask(k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name=None, topic_id=id_)]), 12)
        for id_ in (kit.ids["t"], b"?" * 16)
    )
    assert (known.topics[0].error_code, known.topics[0].name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    assert unknown.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    topics = [
        k01_fetch.FetchTopic(topic_id=id_, partitions=[k01_fetch.FetchPartition(partition=0, fetch_offset=0)])
        for id_ in (kit.ids["t"], b"?" * 16)
    ]
    answer = kit.ask(k01_fetch.FetchRequest(max_wait_ms=0, max_bytes=100, topics=topics), 13)
    assert {t.topic_id: t.partitions[0].error_code for t in answer.responses} == {
        kit.ids["t"]: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        b"?" * 16: ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_what_is_revoked_while_a_fetch_waits_is_not_in_its_response(kit: MemoryKit) -> None:
    """Its client decides how long it waits: up to 24 days."""
    topics = [
        k01_fetch.FetchTopic(topic=name, partitions=[k01_fetch.FetchPartition(partition=0, fetch_offset=0)])
        for name in ("t", "u")
    ]
    message = k01_fetch.FetchRequest(
        session_epoch=-1, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1, max_bytes=100, topics=topics
    )
    before, after = lacking(), lacking(rights.FETCH_TOPIC, name="u")
    request = make_request(message, 12)
    assert before.admit(TABLE[1], request) is None
    waits = TABLE[1].handle(kit.broker.services, request)
    assert isinstance(waits, Park)
    assert after.rules.acls is not None
    before.take({acl.id: acl for acl in after.rules.acls})
    answer = waits.answer()
    assert isinstance(answer, Reply)
    message_of: Any = answer.message
    found = {topic.topic: topic.partitions[0].error_code for topic in message_of.responses}
    assert found == {"t": ErrorCode.NONE, "u": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_who_is_no_node_opens_no_session_of_a_node(kit: MemoryKit) -> None:
    """Such a session would end those of clients in a full cache, and no client's could end it."""
    partition = k01_fetch.FetchPartition(partition=0, fetch_offset=0)
    topics = [k01_fetch.FetchTopic(topic="t", partitions=[partition])]
    request = k01_fetch.FetchRequest(replica_id=7, session_epoch=0, max_wait_ms=0, max_bytes=100, topics=topics)
    for by, is_privileged in ((lacking(rights.FETCH_AS_REPLICA), False), (lacking(), True)):
        kit.by = by
        session_id = kit.ask(request, 12).session_id
        assert kit.broker.services.fetch_sessions._sessions[session_id].is_privileged is is_privileged


def test_no_partition_is_named_to_who_may_not_read_its_topic(kit: MemoryKit) -> None:
    """A partition that does not exist gets the same error as one that does."""
    kit.by = lacking(rights.FETCH_TOPIC, name="u")
    partitions = [k01_fetch.FetchPartition(partition=p, fetch_offset=0) for p in (0, 99)]
    topics = [k01_fetch.FetchTopic(topic="u", partitions=partitions)]
    (found,) = kit.ask(k01_fetch.FetchRequest(max_wait_ms=0, max_bytes=100, topics=topics), 12).responses
    assert [p.error_code for p in found.partitions] == [rights.FETCH_TOPIC.error] * 2
