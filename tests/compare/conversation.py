"""Raw requests to a broker, and its responses in a form in which two brokers can be compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import EncodeError, ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.schema import Request, Struct
from tests.support.wire import RawConnection

CLOSED = "the connection is closed"
CLIENT_ID = "compare"
# Fields that may differ between two brokers with the same behaviour. Only their presence is shown.
_NUMBERS = {"producer_id", "session_id", "port", "partition_size", "total_bytes", "usable_bytes"}
_NAMES = {"member_id", "leader", "cluster_id", "log_dir", "host", "documentation"}
# Fields that other tests compare, or that depend on the broker's other data.
_LEFT_OUT = {
    "throttle_time_ms",
    "error_message",  # text for people; the wording may differ
    "batch_index_error_message",
    "api_keys",
    "supported_features",
    "finalized_features",
    "finalized_features_epoch",
}
Answer = Any  # a JSON value
AnswersByVersion = dict[str, Answer]  # "4-12" or "7" -> the response to these versions


@dataclass(slots=True)
class Later:
    """A request whose response is pending."""

    connection: RawConnection
    api_key: int
    version: int

    def answer(self) -> Any:
        """Wait for the response, decode it, and close the connection."""
        with self.connection as connection:
            answer = connection.receive_frame()
        assert answer is not None, "the connection was closed instead"
        _, offset = decode_response_header(answer, self.api_key, self.version)
        return response_class(self.api_key).decode(answer, self.version, offset)


@dataclass(slots=True)
class Conversation:
    """Sends requests to one broker, each on a new connection."""

    port: int
    topic_ids: dict[bytes, str] = field(default_factory=dict)

    def ask(self, request: Request, version: int) -> Any:
        """Send a request. Returns the decoded response, or None if the broker closes the connection instead."""
        frame = encode_request(RequestHeader(request.API_KEY, version, 1, CLIENT_ID), request)
        return self.ask_raw(frame[4:], request.API_KEY, version)

    def ask_later(self, request: Request, version: int) -> Later:
        """Send a request whose response waits for later requests."""
        connection = RawConnection(self.port)
        connection.send_frame(encode_request(RequestHeader(request.API_KEY, version, 1, CLIENT_ID), request)[4:])
        return Later(connection, request.API_KEY, version)

    def ask_raw(self, payload: bytes, api_key: int, answer_version: int) -> Any:
        """Send any bytes. The response is decoded as that of this API and version."""
        with RawConnection(self.port) as connection:
            answer = connection.request(payload)
        if answer is None:
            return None
        _, offset = decode_response_header(answer, api_key, answer_version)
        return response_class(api_key).decode(answer, answer_version, offset)

    def ask_in_every_version(self, request: Request) -> AnswersByVersion:
        """Send a request in all versions. Returns the comparable responses by ranges of versions with the same one.

        Versions that cannot encode the request are left out.
        """
        answers: list[tuple[int, Answer]] = []
        for version in range(request.MIN_VERSION, request.MAX_VERSION + 1):
            try:
                answers.append((version, self.comparable(self.ask(request, version))))
            except EncodeError:
                continue
        return _merge(answers)

    def comparable(self, value: Any, name: str = "") -> Answer:
        """Return the value without details that may differ between two brokers with the same behaviour."""
        if value is None:
            return CLOSED if not name else None
        if isinstance(value, Struct):
            kept = [row.name for row in value.FIELDS if row.name not in _LEFT_OUT]
            return {each: self.comparable(getattr(value, each), each) for each in kept}
        if isinstance(value, list):
            return [self.comparable(each, name) for each in _in_order(value, name)]
        return self._comparable_leaf(value, name)

    def _comparable_leaf(self, value: Any, name: str) -> Answer:
        if name == "error_code":
            return ErrorCode(value).name
        if name == "topic_id":
            return self.topic_ids.get(value, "some id" if value != ZERO_UUID else "no id")
        if name == "records":
            return [f"{header.record_count} from {header.base_offset}" for _, header in iter_headers(value)]
        if (name in _NAMES and value) or (name in _NUMBERS and value > 0):
            return f"some {name}"
        return value.hex() if isinstance(value, bytes) else value


def _in_order(values: list[Any], name: str) -> list[Any]:
    """Sort configuration entries and partitions, whose order has no meaning."""
    if name == "configs":
        return sorted(values, key=lambda entry: entry.name)
    if name == "partitions" and values and hasattr(values[0], "partition_index"):
        return sorted(values, key=lambda entry: entry.partition_index)
    return values


def _merge(answers: list[tuple[int, Answer]]) -> AnswersByVersion:
    merged: list[tuple[int, int, Answer]] = []
    for version, answer in answers:
        if merged and merged[-1][1] == version - 1 and merged[-1][2] == answer:
            merged[-1] = (merged[-1][0], version, answer)
        else:
            merged.append((version, version, answer))
    return {str(first) if first == last else f"{first}-{last}": answer for first, last, answer in merged}
