"""Errors of the protocol: the codes that travel, and the exceptions of the code that reads and writes messages.

`ErrorCode` has a row per code of Apache Kafka 4.3.1. A response carries a row's message unless
the failure has a more precise one.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """A Kafka error code. `retriable`: the same request may succeed later."""

    retriable: bool  # fixed before start
    message: str  # fixed before start

    # Why the defaults: a type checker reads ErrorCode(3), which looks a member up, as a call of this.
    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the member of a code that a peer sent; a code we do not know is UNKNOWN_SERVER_ERROR."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = -1, False, "The server failed in a way it did not expect."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is outside the range of offsets that the server has."
    CORRUPT_MESSAGE = 2, True, "The message is corrupt: its checksum, size or content is wrong."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This server does not host this topic-partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, True, "The topic-partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = (
        6,
        True,
        "This broker is not the leader of the partition, or not one of its replicas.",
    )
    REQUEST_TIMED_OUT = 7, True, "The request timed out."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available on this broker."
    MESSAGE_TOO_LARGE = 10, False, "The message is larger than the server accepts."
    STALE_CONTROLLER_EPOCH = 11, False, "The request comes from a controller of an older epoch."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of the offset is too large."
    NETWORK_EXCEPTION = 13, True, "The server disconnected before it answered."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator asked for."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name or the operation on this topic is invalid."
    RECORD_LIST_TOO_LARGE = 18, False, "The batch of records is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than required; nothing was appended."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records were appended, but to fewer in-sync replicas than required.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The generation is not the group's."
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        False,
        "The member's protocol type or protocols do not fit those of the group.",
    )
    INVALID_GROUP_ID = 24, False, "The group id is invalid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the range that the broker allows."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; the member must join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Access to the topic was denied."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Access to the group was denied."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Access to the cluster was denied."
    INVALID_TIMESTAMP = 32, False, "The timestamp of the message is outside the accepted range."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not support this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "This version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is invalid."
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is below 1 or above the number of brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is invalid."
    INVALID_CONFIG = 40, False, "The configuration is invalid."
    NOT_CONTROLLER = 41, True, "This is not the active controller."
    INVALID_REQUEST = 42, False, "The request is inconsistent or not valid here; see the broker's log."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The message format does not support the request."
    POLICY_VIOLATION = 44, False, "The request violates a policy of the cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        False,
        "The sequence number does not follow the last one of the producer.",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is older than the one that the broker knows."
    INVALID_TXN_STATE = 48, False, "The transaction is in a state that does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id is not the one of this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is larger than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on this transaction has not finished yet."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Access to the transactional id was denied."
    SECURITY_DISABLED = 54, False, "Security features are disabled."
    OPERATION_NOT_ATTEMPTED = (
        55,
        False,
        "The operation was not tried, because another of the same request failed.",
    )
    KAFKA_STORAGE_ERROR = 56, True, "The broker could not use its storage."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker knows nothing (any more) of this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are disabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        False,
        "The principal neither owns the delegation token nor may renew it.",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens cannot be requested over this channel.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Access to the delegation token was denied."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The type of principal is not supported."
    NON_EMPTY_GROUP = 68, False, "The group is not empty."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The epoch of the fetch session is wrong."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of the kind that this request came in on."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is disabled."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch of the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch of the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The compression type cannot be used with this version."
    STALE_BROKER_EPOCH = 77, False, "The epoch of the broker is older than the controller's."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know its high watermark yet."
    MEMBER_ID_REQUIRED = 79, False, "The member must join again with the member id it was given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken over this static instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may lead is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition needs no election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic."
    INVALID_RECORD = 87, False, "The broker rejected a record of the batch."
    UNSTABLE_OFFSET_COMMIT = 88, True, "There are offsets whose transaction is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is exceeded."
    PRODUCER_FENCED = 90, False, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, False, "There is no such resource."
    DUPLICATE_RESOURCE = 92, False, "The resource is named more than once."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, False, "One of the two sides is not among the voters."
    INVALID_UPDATE_VERSION = 95, False, "The version to update to is invalid."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This server does not know this topic id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A broker of this id is registered and alive."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id is not the one in the log."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session uses topic ids differently."
    INELIGIBLE_REPLICA = 107, False, "The replica may not join the ISR."
    NEW_LEADER_ELECTED = 108, False, "The change of the partition took the leadership from the requester."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is in tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The coordinator fenced the member's epoch; it must rejoin."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member of the group still uses the instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support the assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old; it must heartbeat and try again."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to an endpoint of the wrong type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This type of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is not the current one."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller considers the registration invalid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction met an error and can only be aborted."
    INVALID_RECORD_STATE = 121, False, "The acknowledged record is in a state that does not allow it."
    SHARE_SESSION_NOT_FOUND = 122, True, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The epoch of the share session is wrong."
    FENCED_STATE_EPOCH = 124, False, "The share coordinator fenced the state epoch."
    INVALID_VOTER_KEY = 125, False, "The voter's key does not match this replica's."
    DUPLICATE_VOTER = 126, False, "The voter is in the set of voters already."
    VOTER_NOT_FOUND = 127, False, "The voter is not in the set of voters."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is invalid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client's metadata is stale; it must bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is invalid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The epoch of the streams topology is invalid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The epoch of the streams topology is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker has as many share sessions as it may have."


#: Of a message that goes into a response. Why 8,000: a string has 32,767 bytes there, and a character at most 4.
MESSAGE_CHARACTERS_MAX = 8_000


def message_that_fits(message: str) -> str:
    """Return the message, cut if a response could not carry it: it may quote what a client sent."""
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    return f"{message[: MESSAGE_CHARACTERS_MAX - 1]}…"


class ApiError(Exception):
    """An expected failure: it becomes an error code in the response."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = message_that_fits(message or code.message)
        super().__init__(self.message)

    @property
    def own_message(self) -> str | None:
        """The message, unless it is the code's: the responses of some APIs have none then (Kafka's ApiError)."""
        return None if self.message == self.code.message else self.message


class MalformedMessageError(ValueError):
    """The one error of bytes that are not what they should be: messages, headers, records."""


class UnsupportedVersionError(ValueError):
    """The message has no such version."""


class EncodeError(ValueError):
    """The message cannot be written: a mistake of ours, not of the peer."""


class UnsupportedFieldError(EncodeError):
    """A field is set that the version cannot carry and that must not be dropped silently."""
