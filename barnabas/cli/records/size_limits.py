"""Names the size limit that a record exceeds: the client's, the topic's or the broker's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from barnabas.cli.client import TIMEOUT_S

TOO_LARGE = "MSG_SIZE_TOO_LARGE"
CLIENT_LIMIT_KEY = "message.max.bytes"
CLIENT_LIMIT_DEFAULT = 1_000_000
TOPIC_KEY = "max.message.bytes"
BROKER_KEY = "message.max.bytes"


def refused_by_client(size: int, own: Mapping[str, Any]) -> str:
    """The message for a record that the client itself refuses; `own` are its settings."""
    limit = own.get(CLIENT_LIMIT_KEY, CLIENT_LIMIT_DEFAULT)
    return f"a record of {size} bytes is over the client's limit of {limit} bytes: raise it with --max-message-bytes"


def refused_by_cluster(topic: str, own: Mapping[str, Any]) -> str:
    """The message for a batch that the cluster refused: which setting limits it."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        client = AdminClient(dict(own))
        entry = client.describe_configs([resource])[resource].result(TIMEOUT_S)[TOPIC_KEY]
    except (KafkaException, KeyError, TimeoutError):
        return f"it is over the topic's {TOPIC_KEY} or the broker's {BROKER_KEY}"
    remedy = f"barnabas config set --topic {topic} {TOPIC_KEY}=..."
    if ConfigSource(entry.source) == ConfigSource.DYNAMIC_TOPIC_CONFIG:
        return f"the topic's {TOPIC_KEY} is {entry.value} ({remedy})"
    return f"the broker's {BROKER_KEY} is {entry.value}, and the topic has no {TOPIC_KEY} of its own ({remedy})"
