"""AutoTopicCreation: the broker requests missing topics from the controller.

The client does not wait: its response has UNKNOWN_TOPIC_OR_PARTITION, and it finds the topic when it asks again. There
is one request in flight for a topic, for any number of clients.

Threads: any handler starts a creation; the channel's thread ends it.
Source: Kafka's AutoTopicCreationManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.channels.forwarding import make_envelope
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.protocol.headers import SIZE_BYTES, RequestHeader, encode_request
from barnabas.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.channels.controller_channel import ControllerChannel
    from barnabas.broker.requests.request import Request
    from barnabas.config.config import Config
    from barnabas.protocol.messages.k58_envelope import EnvelopeResponse

log = logging.getLogger("barnabas.auto-topic-creation")


class AutoTopicCreation:
    """Requests topics from the controller."""

    def __init__(self, config: Config, channel: ControllerChannel) -> None:
        self._config = config  # fixed before start
        self._channel = channel  # fixed before start
        self._lock = threading.Lock()
        self._in_flight: set[str] = set()  # guarded by: _lock

    def create(self, names: Iterable[str], request: Request) -> None:
        """Request the topics that are not in flight already, on behalf of the client of `request`."""
        wanted = self._begin(names)
        if not wanted:
            return
        message = self._message(wanted)
        header = RequestHeader(
            CreateTopicsRequest.API_KEY,
            CreateTopicsRequest.MAX_VERSION,
            request.header.correlation_id,
            request.client_id,
        )
        envelope = make_envelope(bytes(encode_request(header, message)[SIZE_BYTES:]), request)
        log.info("asking the controller to create %s", ", ".join(wanted))
        self._channel.send(envelope, lambda response: self._done(wanted, response))

    def create_internal(self, name: str) -> None:
        """Request an internal topic on the broker's own behalf, unless it is in flight already."""
        wanted = self._begin([name])
        if wanted:
            log.info("asking the controller to create %s", name)
            self._channel.send(self._message(wanted), lambda response: self._done(wanted, response))

    def _begin(self, names: Iterable[str]) -> list[str]:
        with self._lock:
            wanted = [name for name in dict.fromkeys(names) if name not in self._in_flight]
            self._in_flight.update(wanted)
        return wanted

    def _message(self, names: list[str]) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[self._topic(name) for name in names], timeout_ms=self._config.request_timeout_ms
        )

    def _done(self, names: list[str], response: CreateTopicsResponse | EnvelopeResponse | None) -> None:
        """End a creation; `response` is None after a timeout."""
        if response is None:
            log.warning("the automatic creation of %s timed out", ", ".join(names))
        elif isinstance(response, CreateTopicsResponse):
            for topic in response.topics:
                if topic.error_code:
                    log.warning("%s was not created: %s", topic.name, topic.error_message)
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
        return CreatableTopic(
            name=name, num_partitions=config.num_partitions, replication_factor=config.default_replication_factor
        )


def _internal(name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
