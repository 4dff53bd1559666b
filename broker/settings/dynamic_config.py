"""DynamicConfig: the dynamic configs from the controller's pushes, and the listeners to their changes.

Rules
1. For a broker key, a value for this broker overrides the value for all brokers, and both override the file.
2. AlterConfigs checks a change (`check_broker_change`); a push is already decided. If a pushed value cannot be used
   after all, it is logged and ignored.
3. Only keys that are `live` in the table of keys are applied. DescribeConfigs shows the others as read-only.
4. Settings without effect, and unknown keys, are accepted as in Kafka, and logged with one line for each reason. A
   setting that should protect something, but has no effect, is refused.
5. Listeners are called after the new values are in place, holding no lock.

Threads: the handler of a push calls `apply_records`, one at a time; any thread calls the rest.
Source: DynamicBrokerConfig, ConfigRepository (Kafka 4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from barnabas.config.effect import protects, warnings
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import LISTENER_KEYS, SSL_KEYS, base_name
from barnabas.config.table.keys import BROKER_KEYS, BROKER_SYNONYMS, DYNAMIC_KEYS, TOPIC_KEYS, Key, Mode, Scope

if TYPE_CHECKING:
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.config import Config, GroupConfig, TopicConfig

log = logging.getLogger("barnabas.config")

ALL_BROKERS: Final = ""


class ResourceType(IntEnum):
    """The types of resources that have configs, with Kafka's numbers (ConfigResource.Type)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_SCOPES: Final[Mapping[int, Scope]] = {
    ResourceType.BROKER: Scope.BROKER,
    ResourceType.TOPIC: Scope.TOPIC,
    ResourceType.GROUP: Scope.GROUP,
}


class Resource(NamedTuple):
    """A resource that has configs."""

    type: int
    name: str


class ConfigRecord(Protocol):
    """One config in the metadata log; a `value` of None removes it."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


Listener = Callable[[Resource], None]
Overrides = Mapping[Resource, Mapping[str, str]]
Check = Callable[["Config"], None]


class DynamicConfig:
    """The dynamic configs of every resource, as of the last push."""

    def __init__(self, config: Config) -> None:
        self.config = config  # fixed before start; its values are replaced by apply_records
        self._file = config.with_overrides({})  # fixed before start
        self._lock = threading.Lock()
        self._overrides: Overrides = {}  # replaced whole under _lock
        self.version = 0  # the number of replacements of _overrides; written under _lock
        self._listeners: list[Listener] = []  # fixed before start
        self._checks: list[Check] = []  # fixed before start

    def on_change(self, listener: Listener) -> None:
        """Add a listener, which is called with each changed resource. To be called before the start.

        A change of a broker resource may also change the defaults of all topics and groups.
        """
        self._listeners.append(listener)

    def before_change(self, check: Check) -> None:
        """Add a check, which raises ConfigError for broker configs that cannot be applied at run time."""
        self._checks.append(check)

    # -- reading

    @property
    def broker_id(self) -> int:
        """The id of this broker."""
        return int(self._file.node_id)

    def overrides(self, type_: int, name: str) -> Mapping[str, str]:
        """Return the dynamic configs of a resource itself."""
        return self._overrides.get(Resource(type_, name), {})

    def all_overrides(self) -> Mapping[Resource, Mapping[str, str]]:
        """Return the dynamic configs of every resource."""
        return self._overrides

    def names(self, type_: int) -> list[str]:
        """Return the names of the resources of a type that have dynamic configs."""
        return sorted(resource.name for resource in self._overrides if resource.type == type_)

    def broker_overrides(self) -> Mapping[str, str]:
        """Return the dynamic configs of this broker alone."""
        return self.overrides(ResourceType.BROKER, str(self._file.node_id))

    def cluster_overrides(self) -> Mapping[str, str]:
        """Return the dynamic configs of all brokers."""
        return self.overrides(ResourceType.BROKER, ALL_BROKERS)

    def broker_value(self, name: str) -> Any:
        """Return the value of a broker key that is never in a file (DYNAMIC_KEYS)."""
        key = DYNAMIC_KEYS[name]
        merged = {**self.cluster_overrides(), **self.broker_overrides()}
        usable = _usable({name: merged[name]} if name in merged else {}, DYNAMIC_KEYS, f"broker {self._file.node_id}")
        return key.parse(usable[name]) if name in usable else key.default

    def static(self) -> Mapping[str, str]:
        """Return the configs of the file."""
        return self._file.originals

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the config of a topic's logs; an unusable value is logged and ignored."""
        overrides = self.overrides(ResourceType.TOPIC, topic)
        return self.config.topic_config(_usable(overrides, TOPIC_KEYS, f"topic {topic}"))

    def group_config(self, group: str) -> GroupConfig:
        """Return the config of a group."""
        return self.config.group_config(self.overrides(ResourceType.GROUP, group))

    # -- writing

    def apply_records(self, records: Iterable[ConfigRecord], *, is_full: bool) -> None:
        """Apply the controller's records in order, then call the listeners for each changed resource.

        With `is_full` the records are complete: configs that they do not name are removed.
        """
        with self._lock:
            before = self._overrides
            after: dict[Resource, dict[str, str]] = {}
            if not is_full:
                after = {resource: dict(texts) for resource, texts in before.items()}
            for record in records:
                texts = after.setdefault(Resource(record.resource_type, record.resource_name), {})
                if record.value is None:
                    texts.pop(record.name, None)
                else:
                    texts[record.name] = record.value
            self._overrides = {resource: texts for resource, texts in after.items() if texts}
            self.version += 1
            changed = [
                resource
                for resource in dict.fromkeys([*before, *after])
                if before.get(resource) != self._overrides.get(resource)
            ]
            if any(self._concerns_broker(resource) for resource in changed):
                self._refresh()
        self._warn(before, changed)
        for resource in changed:
            for listener in self._listeners:
                listener(resource)

    def _warn(self, before: Overrides, changed: Iterable[Resource]) -> None:
        """Log which of the new settings have no effect."""
        found: dict[Scope, set[str]] = {}
        for resource in changed:
            scope = _SCOPES.get(resource.type)
            if scope is None or (scope is Scope.BROKER and not self._concerns_broker(resource)):
                continue
            old, new = before.get(resource, {}), self._overrides.get(resource, {})
            found.setdefault(scope, set()).update(name for name in new if new[name] != old.get(name))
        for scope, names in found.items():
            for line in warnings(scope, names):
                log.warning("%s config: %s", scope.value, line)

    def check_broker_change(self, name: str, wanted: Mapping[str, str]) -> None:
        """Raise ConfigError unless the broker resource `name` ("" for all brokers) may have these configs."""
        for key_name, text in wanted.items():
            self._check_key(BROKER_KEYS.get(base_name(key_name)), key_name, per_broker=name != ALL_BROKERS)
            key = BROKER_KEYS.get(base_name(key_name)) or DYNAMIC_KEYS.get(key_name)
            if key is not None:
                key.parse(text)
        cluster = wanted if name == ALL_BROKERS else self.cluster_overrides()
        own = self.broker_overrides() if name == ALL_BROKERS else wanted
        changed = self._file.with_overrides(_live({**cluster, **own}))
        for check in self._checks:
            check(changed)

    def _concerns_broker(self, resource: Resource) -> bool:
        return resource.type == ResourceType.BROKER and resource.name in (ALL_BROKERS, str(self._file.node_id))

    def _refresh(self) -> None:
        """Install the new values of the live keys (rules 1 and 3)."""
        merged = {**self.cluster_overrides(), **self.broker_overrides()}
        usable = _usable(_live(merged), BROKER_KEYS, f"broker {self._file.node_id}")
        try:
            self.config.replace(self._file.with_overrides(usable))
        except ConfigError as error:
            log.error("dynamic config of broker %s is ignored: %s", self._file.node_id, error)

    @staticmethod
    def _check_key(key: Key | None, name: str, *, per_broker: bool) -> None:
        if key is None:
            if protects(name) is None:
                return  # as in Kafka: an unknown key may belong to a plug-in
            raise ConfigError(f"Cannot update these configs dynamically: [{name}]")
        is_of_listener = name != key.name and key.name not in LISTENER_KEYS
        if not per_broker and (is_of_listener or key.mode is Mode.PER_BROKER):
            raise ConfigError(
                f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
            )
        if not key.live:
            raise ConfigError(f"Cannot update these configs dynamically: [{name}]")


def _live(overrides: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in overrides.items()
        if (key := BROKER_KEYS.get(name) or _ssl_key(name)) is not None and key.live
    }


def _ssl_key(name: str) -> Key | None:
    """Return the key of a TLS setting of one listener; the socket server applies those."""
    base = base_name(name)
    return BROKER_KEYS[base] if base != name and base in SSL_KEYS else None


def _usable(overrides: Mapping[str, str], keys: Mapping[str, Key], owner: str) -> dict[str, str]:
    """Return the configs whose values can be parsed (rule 2)."""
    usable = {}
    for name, text in overrides.items():
        try:
            key = keys.get(name) or _ssl_key(name)
            if key is not None:
                key.parse(text)
                usable[name] = text
        except ConfigError as error:
            log.error("dynamic config of %s is ignored: %s", owner, error)
    return usable


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return the broker keys for the same setting as `name`, the strongest first."""
    return BROKER_SYNONYMS.get(name, (name,))


class HasLimits(Protocol):
    """The part of a replication throttle that is needed here."""

    def set_limit(self, bytes_per_s: int) -> None:
        """Set the allowed bytes per second."""

    def throttle(self, topic: str, replicas: Iterable[str], broker_id: int) -> None:
        """Throttle these replicas of a topic, and no others of the topic."""


def keep_throttled(dynamic: DynamicConfig, leader: HasLimits, follower: HasLimits) -> None:
    """Make the replication throttles follow the configs of topics and of this broker; called before the start."""
    broker_id = int(dynamic.config.node_id)

    def update(resource: Resource) -> None:
        if resource.type == ResourceType.TOPIC:
            config = dynamic.topic_config(resource.name)
            leader.throttle(resource.name, config.leader_replication_throttled_replicas, broker_id)
            follower.throttle(resource.name, config.follower_replication_throttled_replicas, broker_id)
        elif resource.type == ResourceType.BROKER:
            leader.set_limit(dynamic.broker_value("leader.replication.throttled.rate"))
            follower.set_limit(dynamic.broker_value("follower.replication.throttled.rate"))

    dynamic.on_change(update)


def keep_logs_configured(dynamic: DynamicConfig, logs: LogManager) -> None:
    """Make every log follow the configs of its topic and of this broker; called before the start."""

    def update(resource: Resource) -> None:
        if resource.type == ResourceType.TOPIC:
            changed = [log for log in logs.all_logs() if log.topic_partition.topic == resource.name]
        elif resource.type == ResourceType.BROKER:
            changed = logs.all_logs()
        else:
            return
        configs: dict[str, TopicConfig] = {}
        for log in changed:
            topic = log.topic_partition.topic
            if topic not in configs:
                configs[topic] = dynamic.topic_config(topic)
            log.update_config(configs[topic])
            log.producer_state.producer_id_expiration_ms = dynamic.config.producer_id_expiration_ms
            log.producer_state.verifies = dynamic.config.transaction_partition_verification_enable

    dynamic.on_change(update)
