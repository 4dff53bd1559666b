"""NodeConfigs: the configs of every resource as a controller knows them, for DescribeConfigs (KIP-919).

The values are those of the controller's file, and what the metadata has for all nodes, for this one, and for topics,
groups and subscriptions. A value of the metadata that cannot be used is left out, as on brokers.

Threads: any; an instance answers one request.
Source: ConfigHelper in ControllerApis (Kafka 4.3).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from barnabas.broker.settings.dynamic_config import usable
from barnabas.config.errors import ConfigError
from barnabas.config.resources.client_metrics import CLIENT_METRICS_KEYS, ClientMetricsConfig
from barnabas.config.table.keys import BROKER_KEYS, TOPIC_KEYS, Key
from barnabas.controller.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE

if TYPE_CHECKING:
    from barnabas.config import Config, GroupConfig, TopicConfig
    from barnabas.controller.image import Image


class NodeConfigs:
    """See the module; a `ConfigSource`."""

    def __init__(self, file: Config, image: Image) -> None:
        self._file = file
        self._image = image

    @property
    def broker_id(self) -> int:
        """The id of this controller."""
        return int(self._file.node_id)

    @cached_property
    def config(self) -> Config:
        """The file's values, and over them those of the metadata that a node takes over while it runs."""
        merged = {**self.cluster_overrides(), **self.broker_overrides()}
        texts = _usable(merged, {name: key for name, key in BROKER_KEYS.items() if key.live})
        if not texts:
            return self._file
        with contextlib.suppress(ConfigError):
            return self._file.with_overrides(texts)
        found = self._file
        for name, text in texts.items():
            try:
                found = found.with_overrides({name: text})
            except ConfigError:  # Why: it contradicts the file or the others, and is ignored
                continue
        return found

    def static(self) -> Mapping[str, str]:
        """Return the configs of the file."""
        return self._file.originals

    def broker_overrides(self) -> Mapping[str, str]:
        """Return the dynamic configs of this node alone."""
        return self._image.resource_configs(BROKER_RESOURCE, str(self.broker_id))

    def cluster_overrides(self) -> Mapping[str, str]:
        """Return the dynamic configs of all nodes."""
        return self._image.resource_configs(BROKER_RESOURCE, "")

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the config of a topic."""
        return self.config.topic_config(_usable(self._image.resource_configs(TOPIC_RESOURCE, topic), TOPIC_KEYS))

    def group_config(self, group: str) -> GroupConfig:
        """Return the config of a group."""
        return self.config.group_config(self._image.resource_configs(GROUP_RESOURCE, group))

    def client_metrics_config(self, name: str) -> ClientMetricsConfig:
        """Return the config of a client metrics subscription."""
        texts = self._image.resource_configs(CLIENT_METRICS_RESOURCE, name)
        return ClientMetricsConfig(_usable(texts, CLIENT_METRICS_KEYS))


def _usable(texts: Mapping[str, str], keys: Mapping[str, Key]) -> dict[str, str]:
    """Return the usable values; brokers report the others."""
    return usable(texts, keys.get, lambda _name, _error: None)
