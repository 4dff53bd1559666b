"""AutoTopicCreation: the broker requests missing topics from the controller.

The client does not wait: its response has UNKNOWN_TOPIC_OR_PARTITION, and it finds the topic when it asks again. There
is one request in flight for a topic, for any number of clients.

The topics of a streams group (KIP-1071) are created as the member that asks for them, so the controller checks its
rights. Why one could not be created is kept for its next answers (`creation_errors.py`).

Threads: any handler starts a creation; the channel's thread ends it.
Source: Kafka's AutoTopicCreationManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.channels.forwarding import make_envelope
from barnabas.broker.metadata.creation_errors import CreationErrors
from barnabas.broker.metadata.metadata_cache import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from barnabas.common.logs import LogLimit
from barnabas.protocol.errors import ErrorCode, MalformedMessageError
from barnabas.protocol.headers import SIZE_BYTES, RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.channels.controller_channel import ControllerChannel
    from barnabas.broker.requests.request import Request
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.protocol.messages.k58_envelope import EnvelopeResponse

log = logging.getLogger("barnabas.auto-topic-creation")

_BY_CONTROLLER: Final = -1  # its defaults count, where the file of this broker is silent
SHOWN_MAX: Final = 10  # topics that one request writes to the log: clients name them


class AutoTopicCreation:
    """Requests topics from the controller."""

    def __init__(self, config: Config, channel: ControllerChannel, clock: Clock) -> None:
        self._config = config  # fixed before start
        self._channel = channel  # fixed before start
        self._errors = CreationErrors(clock)  # of topics of streams groups
        self._lines = LogLimit(log, clock.monotonic_ns)  # fixed before start
        self._lock = threading.Lock()
        self._in_flight: set[str] = set()  # guarded by: _lock

    def create(self, names: Iterable[str], request: Request) -> None:
        """Request the topics that are not in flight already, on behalf of the client of `request`."""
        wanted = self._begin(names)
        if wanted:
            self._send_for_client([self._topic(name) for name in wanted], request, partial(self._done, wanted))

    def create_for_streams(
        self, names: Sequence[str], describe: Callable[[str], CreatableTopic], request: Request, keep_errors_ms: int
    ) -> None:
        """Request topics of a streams group, which `describe` describes, for its member that sent `request`.

        Left out are topics that are in flight already, and those that failed in the last `keep_errors_ms`.
        """
        failed = self._errors.of(names)
        wanted = self._begin(name for name in names if name not in failed)
        if wanted:
            done = partial(self._done_for_streams, wanted, request.header.correlation_id, keep_errors_ms)
            self._send_for_client([describe(name) for name in wanted], request, done)

    def streams_errors(self, names: Collection[str]) -> dict[str, str]:
        """Return why topics of streams groups could not be created, as far as an attempt failed lately."""
        return self._errors.of(names)

    def _send_for_client(
        self, topics: list[CreatableTopic], request: Request, on_done: Callable[[EnvelopeResponse | None], None]
    ) -> None:
        header = RequestHeader(
            CreateTopicsRequest.API_KEY,
            CreateTopicsRequest.MAX_VERSION,
            request.header.correlation_id,
            request.client_id,
        )
        frame = bytes(encode_request(header, self._message(topics))[SIZE_BYTES:])
        self._announce([topic.name for topic in topics])
        self._channel.send(make_envelope(frame, request), on_done)

    def create_internal(self, name: str) -> None:
        """Request an internal topic on the broker's own behalf, unless it is in flight already."""
        wanted = self._begin([name])
        if wanted:
            self._announce(wanted)
            self._channel.send(self._message([self._topic(name)]), lambda response: self._done(wanted, response))

    def _announce(self, names: list[str]) -> None:
        if self._lines.admits(logging.INFO, "requests to create topics"):
            log.info("asking the controller to create %s", _shown(names))

    def _begin(self, names: Iterable[str]) -> list[str]:
        with self._lock:
            wanted = [name for name in dict.fromkeys(names) if name not in self._in_flight]
            self._in_flight.update(wanted)
        return wanted

    def _message(self, topics: list[CreatableTopic]) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=topics, timeout_ms=self._config.request_timeout_ms)

    def _done(self, names: list[str], response: CreateTopicsResponse | EnvelopeResponse | None) -> None:
        """End a creation; `response` is None after a timeout."""
        if response is None:
            if self._lines.admits(logging.WARNING, "creations of topics timed out"):
                log.warning("the automatic creation of %s timed out", _shown(names))
        elif isinstance(response, CreateTopicsResponse):
            for topic in response.topics:
                # Why: clients ask for a coordinator until this broker's metadata has the topic.
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._log_failure(topic.name, topic.error_message)
        with self._lock:
            self._in_flight.difference_update(names)

    def _log_failure(self, name: str, message: str | None) -> None:
        if self._lines.admits(logging.WARNING, "topics were not created"):
            log.warning("%s was not created: %s", name, message)

    def _done_for_streams(
        self, names: list[str], correlation_id: int, keep_errors_ms: int, response: EnvelopeResponse | None
    ) -> None:
        """End a creation, and keep why topics were not created."""
        errors = _errors_in(names, correlation_id, response)
        for name, message in errors.items():
            self._errors.put(name, message, keep_errors_ms)
            self._log_failure(name, message)
        with self._lock:
            self._in_flight.difference_update(names)

    def _topic(self, name: str) -> CreatableTopic:
        config = self._config
        if name == GROUP_METADATA_TOPIC:
            return _internal(
                name,
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )
        if name == TRANSACTION_STATE_TOPIC:
            return _internal(
                name,
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.transaction_state_log_min_isr),
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        if name == SHARE_GROUP_STATE_TOPIC:
            return _internal(
                name,
                config.share_coordinator_state_topic_num_partitions,
                config.share_coordinator_state_topic_replication_factor,
                {
                    "cleanup.policy": "delete",
                    "compression.type": "producer",
                    "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                    # Not in Kafka: with log.retention.bytes, state that is still needed could be deleted.
                    "retention.bytes": "-1",
                    "retention.ms": "-1",
                    "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
                },
            )
        topic = CreatableTopic(name=name, num_partitions=_BY_CONTROLLER, replication_factor=_BY_CONTROLLER)
        if "num.partitions" in config.originals:
            topic.num_partitions = config.num_partitions
        if "default.replication.factor" in config.originals:
            topic.replication_factor = config.default_replication_factor
        return topic


def _shown(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_MAX
    return ", ".join(names[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def _errors_in(names: Iterable[str], correlation_id: int, response: EnvelopeResponse | None) -> dict[str, str]:
    """Return why topics were not created, by name; a topic that exists meanwhile is no error."""
    if response is None:
        return dict.fromkeys(names, "The controller did not answer in time.")
    if response.error_code or response.response_data is None:
        return dict.fromkeys(names, ErrorCode.of(response.error_code).message)
    key, version = CreateTopicsRequest.API_KEY, CreateTopicsRequest.MAX_VERSION
    try:
        frame = memoryview(response.response_data)
        answered_id, offset = decode_response_header(frame, key, version)
        if answered_id != correlation_id:
            raise MalformedMessageError(f"its correlation id is {answered_id}")
        message = CreateTopicsResponse.decode(frame, version, offset)
    except MalformedMessageError as error:
        log.error("cannot decode the controller's answer to a creation of topics: %s", error)
        return dict.fromkeys(names, ErrorCode.UNKNOWN_SERVER_ERROR.message)
    return {
        topic.name: topic.error_message or ErrorCode.of(topic.error_code).message
        for topic in message.topics
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }


def _internal(name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
