"""The response to a request that failed as a whole, for any API.

Old versions have no error at the top of the response; there each topic, partition or group that the request named
gets the code. ROWS says, per API key, where the error goes; an API without a row has the code at the top and
nothing else.

    Items("topics", "topics", {"name": "name"}, inner=Items("partitions", "partitions", {"": "partition_index"}))

reads: for each of the request's `topics` an element in the response's `topics`, its `name` copied; inside it for each
of `partitions` (plain numbers: "" is the element itself) one with that `partition_index`. The innermost elements carry
the error code.

Source: `getErrorResponse` of each request class of Apache Kafka (4.3.1; 3.9 for keys 4 to 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from barnabas.protocol.api_keys import ROWS as API_ROWS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fields import parse_versions
from barnabas.protocol.messages import response_class
from barnabas.protocol.schema import Message, Response, Struct

NOTHING: Mapping[str, Any] = {}


class Text(Enum):
    """The text that an API puts into `error_message`."""

    NONE = "nothing"
    GENERIC = "the message of the code"
    SPECIFIC = "the message of this failure, unless it is the message of the code or might leak something"
    ANY = "the message of this failure"


class Items(NamedTuple):
    """A list of the request and the list of the response that answers it, element by element."""

    source: str
    target: str
    copies: Mapping[str, str] = NOTHING  # attribute of the request's element -> attribute of the response's
    inner: Items | None = None  # the lists inside, which carry the error instead
    versions: str = "0+"
    fixed: Mapping[str, Any] = NOTHING  # what the innermost elements have beside the error
    code_field: str = "error_code"


class Row(NamedTuple):
    """Where an API's response carries an error."""

    text: Text = Text.NONE
    items: tuple[Items, ...] = ()
    fixed: Mapping[str, Any] = NOTHING  # what the response has beside the error
    fixed_versions: str = "0+"  # the versions that have it


class _Error(NamedTuple):
    """The error being reported, and the version it is reported in."""

    code: int
    has_text: bool  # False leaves `error_message` at its default, which may be "" and not null
    text: str | None
    version: int


def error_response(request: Message, version: int, code: ErrorCode | int, message: str | None = None) -> Response:
    """Build the answer to `request` that reports an error about all of it.

    A Produce request with acks=0 gets no response; the caller checks that.
    """
    code = ErrorCode(code)
    row = ROWS.get(request.API_KEY, DEFAULT_ROW)
    error = _Error(int(code), row.text is not Text.NONE, _text(row.text, code, message), version)
    response = response_class(request.API_KEY)()
    _put_error(response, "error_code", error)
    for items in row.items:
        if _includes(items.versions, version):
            _items(items, [request], response, error)
    if _includes(row.fixed_versions, version):
        for name, value in row.fixed.items():
            setattr(response, name, value)
    special = SPECIAL.get(request.API_KEY)
    if special is not None:
        special(request, response, error)
    return response


def answer_items(items: Items, request: Message, response: Response, version: int, code: ErrorCode | int) -> None:
    """Report an error for each element of one list of a request; the rest of the response stays as it is."""
    _items(items, [request], response, _Error(int(code), False, None, version))


def failed_like(items: Items, answer: Struct, version: int, code: ErrorCode | int) -> Struct:
    """Return an innermost element that reports an error for the same topic, partition or group as `answer`."""
    failed = type(answer)()
    for name in items.copies.values():
        setattr(failed, name, getattr(answer, name))
    _put_error(failed, items.code_field, _Error(int(code), False, None, version))
    for name, value in items.fixed.items():
        setattr(failed, name, value)
    return failed


def _text(kind: Text, code: ErrorCode, message: str | None) -> str | None:
    if kind is Text.NONE:
        return None
    if kind is Text.GENERIC:
        return code.message
    if kind is Text.ANY:
        return message or code.message
    # UNKNOWN_SERVER_ERROR is an unexpected failure: its text may hold what a client should not see.
    return None if code is ErrorCode.UNKNOWN_SERVER_ERROR or message == code.message else message


def _includes(versions: str, version: int) -> bool:
    low, high = parse_versions(versions)
    return low <= version <= high


def _put_error(target: Struct, code_field: str, error: _Error) -> None:
    """Set the code, and the text if there is one, where the version has a field for it."""
    for field in target.FIELDS:
        if not field.is_present(error.version):
            continue
        if field.name == code_field:
            setattr(target, field.name, error.code)
        elif field.name == "error_message" and error.has_text:
            target.error_message = error.text  # type: ignore[attr-defined]


def _items(items: Items, parents: list[Any], target: Struct, error: _Error) -> None:
    """Answer each element of `items.source` of the parents with one in `target`."""
    element_class = next(field.element for field in target.FIELDS if field.name == items.target)
    answers = getattr(target, items.target)
    for element in _elements(items.source, parents):
        answer = element_class()
        for source, name in items.copies.items():
            setattr(answer, name, getattr(element, source) if source else element)
        if items.inner is not None:
            _items(items.inner, [element], answer, error)
        else:
            _put_error(answer, items.code_field, error)
            for name, value in items.fixed.items():
                setattr(answer, name, value)
        answers.append(answer)


def _elements(source: str, parents: list[Any]) -> Iterator[Any]:
    """Yield what the parents hold under a path: "dirs.topics" is the topics of all dirs."""
    name, _, rest = source.partition(".")
    for parent in parents:
        elements = getattr(parent, name) or ()
        yield from _elements(rest, list(elements)) if rest else elements


# Answers that a row cannot say.


def _api_versions(_: Any, response: Any, error: _Error) -> None:
    """Report the supported versions to a client that sent an unknown version (KIP-511)."""
    if error.code != ErrorCode.UNSUPPORTED_VERSION:
        return
    from barnabas.protocol.messages.k18_api_versions import ApiVersion

    row = API_ROWS[ApiKey.API_VERSIONS]
    response.api_keys.append(
        ApiVersion(api_key=int(ApiKey.API_VERSIONS), min_version=row.min_version, max_version=row.max_version)
    )


def _produce(_: Any, response: Any, error: _Error) -> None:
    """Leave out topics without partitions: the error has nowhere to go."""
    response.responses = [topic for topic in response.responses if topic.partition_responses]


def _write_txn_markers(_: Any, response: Any, error: _Error) -> None:
    """Leave out topics without partitions, but no producer."""
    for marker in response.markers:
        marker.topics = [topic for topic in marker.topics if topic.partitions]


def _fetch(request: Any, response: Any, error: _Error) -> None:
    """Keep the session that the client named."""
    response.session_id = request.session_id


def _metadata(_: Any, response: Any, error: _Error) -> None:
    """A topic asked for by id has no name, and the response allows null only in later versions: write ""."""
    for topic in response.topics:
        if topic.name is None:
            topic.name = ""


def _leader_and_isr(request: Any, response: Any, error: _Error) -> None:
    """Versions below 5 list partitions flat, with the names of their topics."""
    from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrPartitionError

    if error.version >= 5:
        return
    named = [(state.topic_name, state) for state in request.ungrouped_partition_states]
    named += [(topic.topic_name, state) for topic in request.topic_states for state in topic.partition_states]
    response.partition_errors = [
        LeaderAndIsrPartitionError(topic_name=name, partition_index=state.partition_index, error_code=error.code)
        for name, state in named
    ]


def _stop_replica(request: Any, response: Any, error: _Error) -> None:
    """Answer the partitions of all three ways in which versions name them."""
    from barnabas.protocol.messages.k05_stop_replica import StopReplicaPartitionError

    named = [(state.topic_name, state.partition_index) for state in request.ungrouped_partitions]
    named += [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    named += [
        (topic.topic_name, state.partition_index) for topic in request.topic_states for state in topic.partition_states
    ]
    response.partition_errors = [
        StopReplicaPartitionError(topic_name=name, partition_index=index, error_code=error.code)
        for name, index in named
    ]


def _alter_client_quotas(request: Any, response: Any, error: _Error) -> None:
    """Name the entities of each entry again."""
    for entry, answer in zip(request.entries, response.entries, strict=True):
        answer.entity = list(entry.entity)


def _alter_scram(request: Any, response: Any, error: _Error) -> None:
    """Answer each user once, sorted, however often the request names it."""
    from barnabas.protocol.messages.k51_alter_user_scram_credentials import AlterUserScramCredentialsResult

    users = {change.name for change in [*request.deletions, *request.upsertions]}
    response.results = [
        AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.text)
        for user in sorted(users)
    ]


def _create_delegation_token(_: Any, response: Any, error: _Error) -> None:
    """Name an anonymous requester in the versions that name one."""
    if error.version >= 3:
        response.token_requester_principal_type = "User"
        response.token_requester_principal_name = "ANONYMOUS"


SPECIAL: dict[int, Callable[[Any, Any, _Error], None]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.METADATA: _metadata,
    ApiKey.LEADER_AND_ISR: _leader_and_isr,
    ApiKey.STOP_REPLICA: _stop_replica,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
}


# The rows.

DEFAULT_ROW = Row()

_NAME = {"name": "name"}
_NO_NODE = {"node_id": -1, "port": -1}
_NAME_AND_ID = {"name": "name", "topic_id": "topic_id"}
_PARTITION_INDEX = {"partition_index": "partition_index"}
_PLAIN_INDEX = {"": "partition_index"}
_RESOURCE = {"resource_type": "resource_type", "resource_name": "resource_name"}
_PARTITIONS = Items("partitions", "partitions", _PARTITION_INDEX)
_PARTITION_INDEXES = Items("partition_indexes", "partitions", _PLAIN_INDEX)
_GROUPS_BY_ID = (Items("group_ids", "groups", {"": "group_id"}),)
_SHARE_STATE = (
    Items(
        "topics",
        "results",
        {"topic_id": "topic_id"},
        inner=Items("partitions", "partitions", {"partition": "partition"}),
    ),
)

ROWS: dict[int, Row] = {
    ApiKey.PRODUCE: Row(
        Text.SPECIFIC,
        (
            Items(
                "topic_data",
                "responses",
                _NAME_AND_ID,
                inner=Items("partition_data", "partition_responses", {"index": "index"}, fixed={"base_offset": -1}),
            ),
        ),
    ),
    # From version 13 on, the code at the top is enough.
    ApiKey.FETCH: Row(
        items=(
            Items(
                "topics",
                "responses",
                {"topic": "topic", "topic_id": "topic_id"},
                versions="0-12",
                inner=Items(
                    "partitions",
                    "partitions",
                    {"partition": "partition_index"},
                    fixed={"high_watermark": -1, "records": b""},
                ),
            ),
        )
    ),
    ApiKey.LIST_OFFSETS: Row(items=(Items("topics", "topics", _NAME, inner=_PARTITIONS),)),
    ApiKey.METADATA: Row(items=(Items("topics", "topics", _NAME_AND_ID),)),
    ApiKey.LEADER_AND_ISR: Row(
        items=(
            Items(
                "topic_states",
                "topics",
                {"topic_id": "topic_id"},
                versions="5+",
                inner=Items("partition_states", "partition_errors", _PARTITION_INDEX),
            ),
        )
    ),
    ApiKey.OFFSET_COMMIT: Row(items=(Items("topics", "topics", _NAME_AND_ID, inner=_PARTITIONS),)),
    ApiKey.OFFSET_FETCH: Row(
        items=(
            Items(
                "topics",
                "topics",
                _NAME,
                versions="0-1",
                inner=Items("partition_indexes", "partitions", _PLAIN_INDEX, fixed={"committed_offset": -1}),
            ),
            Items("groups", "groups", {"group_id": "group_id"}, versions="8+"),
        )
    ),
    ApiKey.FIND_COORDINATOR: Row(
        Text.GENERIC,
        (Items("coordinator_keys", "coordinators", {"": "key"}, versions="4+", fixed=_NO_NODE),),
        fixed=_NO_NODE,
        fixed_versions="0-3",
    ),
    ApiKey.JOIN_GROUP: Row(fixed={"protocol_name": None}, fixed_versions="7+"),
    ApiKey.DESCRIBE_GROUPS: Row(items=(Items("groups", "groups", {"": "group_id"}),)),
    ApiKey.CREATE_TOPICS: Row(Text.SPECIFIC, (Items("topics", "topics", _NAME),)),
    ApiKey.DELETE_TOPICS: Row(
        items=(
            Items("topic_names", "responses", {"": "name"}, versions="0-5"),
            Items("topics", "responses", _NAME_AND_ID, versions="6+"),
        )
    ),
    ApiKey.DELETE_RECORDS: Row(
        items=(
            Items(
                "topics",
                "topics",
                _NAME,
                inner=Items("partitions", "partitions", _PARTITION_INDEX, fixed={"low_watermark": -1}),
            ),
        )
    ),
    ApiKey.INIT_PRODUCER_ID: Row(fixed={"producer_id": -1, "producer_epoch": -1}),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Row(
        items=(
            Items(
                "topics",
                "topics",
                {"topic": "topic"},
                inner=Items("partitions", "partitions", {"partition": "partition"}),
            ),
        )
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Row(
        items=(
            Items(
                "v3_and_below_topics",
                "results_by_topic_v3_and_below",
                _NAME,
                versions="0-3",
                inner=Items("partitions", "results_by_partition", _PLAIN_INDEX, code_field="partition_error_code"),
            ),
        )
    ),
    ApiKey.WRITE_TXN_MARKERS: Row(
        items=(
            Items(
                "markers",
                "markers",
                {"producer_id": "producer_id"},
                inner=Items("topics", "topics", _NAME, inner=_PARTITION_INDEXES),
            ),
        )
    ),
    ApiKey.TXN_OFFSET_COMMIT: Row(items=(Items("topics", "topics", _NAME, inner=_PARTITIONS),)),
    ApiKey.DESCRIBE_ACLS: Row(Text.SPECIFIC),
    ApiKey.CREATE_ACLS: Row(Text.SPECIFIC, (Items("creations", "results"),)),
    ApiKey.DELETE_ACLS: Row(Text.SPECIFIC, (Items("filters", "filter_results"),)),
    ApiKey.DESCRIBE_CONFIGS: Row(Text.GENERIC, (Items("resources", "results", _RESOURCE),)),
    ApiKey.ALTER_CONFIGS: Row(Text.SPECIFIC, (Items("resources", "responses", _RESOURCE),)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Row(
        items=(
            Items(
                "dirs.topics",
                "results",
                {"name": "topic_name"},
                inner=Items("partitions", "partitions", _PLAIN_INDEX),
            ),
        )
    ),
    ApiKey.SASL_AUTHENTICATE: Row(Text.SPECIFIC),
    ApiKey.CREATE_PARTITIONS: Row(Text.SPECIFIC, (Items("topics", "results", _NAME),)),
    ApiKey.CREATE_DELEGATION_TOKEN: Row(
        fixed={
            "principal_type": "User",
            "principal_name": "ANONYMOUS",
            "issue_timestamp_ms": -1,
            "expiry_timestamp_ms": -1,
            "max_timestamp_ms": -1,
        }
    ),
    ApiKey.DELETE_GROUPS: Row(items=(Items("groups_names", "results", {"": "group_id"}),)),
    ApiKey.ELECT_LEADERS: Row(
        Text.SPECIFIC,
        (
            Items(
                "topic_partitions",
                "replica_election_results",
                {"topic": "topic"},
                inner=Items("partitions", "partition_result", {"": "partition_id"}),
            ),
        ),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Row(Text.SPECIFIC, (Items("resources", "responses", _RESOURCE),)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Row(Text.SPECIFIC, (Items("topics", "responses", _NAME, inner=_PARTITIONS),)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Row(
        Text.SPECIFIC, (Items("topics", "topics", _NAME, inner=_PARTITION_INDEXES),)
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Row(Text.SPECIFIC, fixed={"entries": None}),
    ApiKey.ALTER_CLIENT_QUOTAS: Row(Text.GENERIC, (Items("entries", "entries"),)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Row(Text.SPECIFIC, (Items("users", "results"),)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Row(Text.SPECIFIC),
    ApiKey.DESCRIBE_QUORUM: Row(Text.GENERIC),
    ApiKey.UPDATE_FEATURES: Row(Text.SPECIFIC),
    ApiKey.DESCRIBE_CLUSTER: Row(Text.SPECIFIC),
    ApiKey.DESCRIBE_PRODUCERS: Row(items=(Items("topics", "topics", _NAME, inner=_PARTITION_INDEXES),)),
    ApiKey.UNREGISTER_BROKER: Row(Text.ANY),
    ApiKey.DESCRIBE_TRANSACTIONS: Row(
        items=(Items("transactional_ids", "transaction_states", {"": "transactional_id"}),)
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Row(items=_GROUPS_BY_ID),
    ApiKey.CONTROLLER_REGISTRATION: Row(Text.GENERIC),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Row(items=(Items("topics", "topics", _NAME),)),
    ApiKey.SHARE_GROUP_DESCRIBE: Row(items=_GROUPS_BY_ID),
    ApiKey.ADD_RAFT_VOTER: Row(Text.GENERIC),
    ApiKey.REMOVE_RAFT_VOTER: Row(Text.GENERIC),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Row(items=_SHARE_STATE),
    ApiKey.READ_SHARE_GROUP_STATE: Row(Text.GENERIC, _SHARE_STATE),
    ApiKey.WRITE_SHARE_GROUP_STATE: Row(Text.GENERIC, _SHARE_STATE),
    ApiKey.DELETE_SHARE_GROUP_STATE: Row(items=_SHARE_STATE),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Row(Text.GENERIC, _SHARE_STATE),
    ApiKey.STREAMS_GROUP_DESCRIBE: Row(items=_GROUPS_BY_ID),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Row(Text.ANY, (Items("groups", "groups", {"group_id": "group_id"}),)),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Row(Text.GENERIC),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Row(Text.GENERIC),
}
