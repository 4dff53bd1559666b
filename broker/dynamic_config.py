"""What the controller has told this broker about configs, and who must know when it changes.

Rules
1. For a broker key, what is set for this broker weighs more than what is set for all brokers, and that more than the
   file.
2. A change is checked before it is accepted by AlterConfigs (`check_broker_change`), never here: what comes from the
   controller is decided. A value that cannot be used all the same is logged and passed over.
3. Only keys that are `live` in THE table are applied; DescribeConfigs calls the others read-only.
4. What is set and has no effect, unknown keys too, is accepted as Kafka does, and logged in one line a reason.
   What is meant to protect and would not is refused.
5. Listeners are called after the new values are in place, holding no lock.

Threads: `apply_records` by the handler that runs the controller's push, one at a time; the rest by anyone.
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
from barnabas.config.keys import BROKER_KEYS, BROKER_SYNONYMS, DYNAMIC_KEYS, TOPIC_KEYS, Key, Mode, Scope
from barnabas.config.listeners import LISTENER_KEYS, base_name

if TYPE_CHECKING:
    from barnabas.config import Config, GroupConfig, TopicConfig

log = logging.getLogger("barnabas.config")

ALL_BROKERS: Final = ""


class ResourceType(IntEnum):
    """What a config belongs to, by Kafka's numbers (ConfigResource.Type)."""

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
    """Something that has configs."""

    type: int
    name: str


class ConfigRecord(Protocol):
    """One setting in the metadata log; `value` None takes it away."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


class HasLogs(Protocol):
    """The part of the log manager that is needed here."""

    def all_logs(self) -> Iterable[Any]:
        """Return every log."""


Listener = Callable[[Resource], None]
Overrides = Mapping[Resource, Mapping[str, str]]
Check = Callable[["Config"], None]


class DynamicConfig:
    """Overrides of every resource, as of the last push."""

    def __init__(self, config: Config) -> None:
        self.config = config  # fixed before start; its values are replaced by apply_records
        self._file = config.with_overrides({})  # fixed before start
        self._lock = threading.Lock()
        self._overrides: Overrides = {}  # replaced whole under _lock
        self.version = 0  # counts the replacements of _overrides; written under _lock
        self._listeners: list[Listener] = []  # fixed before start
        self._checks: list[Check] = []  # fixed before start

    def on_change(self, listener: Listener) -> None:
        """Have `listener` called with each resource that changed: a topic's logs take `topic_config` then, say.

        A change of a broker resource may change the defaults of all topics and groups.
        """
        self._listeners.append(listener)

    def before_change(self, check: Check) -> None:
        """Have `check` raise ConfigError for broker configs that its owner could not change to at run time."""
        self._checks.append(check)

    # -- reading

    def overrides(self, type_: int, name: str) -> Mapping[str, str]:
        """Return what is set for a resource itself."""
        return self._overrides.get(Resource(type_, name), {})

    def all_overrides(self) -> Mapping[Resource, Mapping[str, str]]:
        """Return what is set for every resource."""
        return self._overrides

    def names(self, type_: int) -> list[str]:
        """Return the names of the resources of a type that have settings."""
        return sorted(resource.name for resource in self._overrides if resource.type == type_)

    def broker_overrides(self) -> Mapping[str, str]:
        """Return what is set for this very broker."""
        return self.overrides(ResourceType.BROKER, str(self._file.node_id))

    def cluster_overrides(self) -> Mapping[str, str]:
        """Return what is set for all brokers."""
        return self.overrides(ResourceType.BROKER, ALL_BROKERS)

    def broker_value(self, name: str) -> Any:
        """Return the value of a broker key that no file can hold (DYNAMIC_KEYS)."""
        key = DYNAMIC_KEYS[name]
        merged = {**self.cluster_overrides(), **self.broker_overrides()}
        usable = _usable({name: merged[name]} if name in merged else {}, DYNAMIC_KEYS, f"broker {self._file.node_id}")
        return key.parse(usable[name]) if name in usable else key.default

    def static(self) -> Mapping[str, str]:
        """Return what stands in the file."""
        return self._file.originals

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the config of a topic's logs; a setting that cannot be is logged and passed over."""
        overrides = self.overrides(ResourceType.TOPIC, topic)
        return self.config.topic_config(_usable(overrides, TOPIC_KEYS, f"topic {topic}"))

    def group_config(self, group: str) -> GroupConfig:
        """Return the config of a group."""
        return self.config.group_config(self.overrides(ResourceType.GROUP, group))

    # -- writing

    def apply_records(self, records: Iterable[ConfigRecord], *, is_full: bool) -> None:
        """Take over the controller's records in order, then tell the listeners which resources changed.

        `is_full`: the records are all there are; what they do not name is no longer set.
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
        """Say which of the settings that are new have no effect."""
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
        """Raise ConfigError unless the broker resource `name` ("" for all brokers) may have these settings."""
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
        """Put new values of the live keys in place (rules 1 and 3)."""
        merged = {**self.cluster_overrides(), **self.broker_overrides()}
        usable = _usable(_live(merged), BROKER_KEYS, f"broker {self._file.node_id}")
        try:
            self.config.replace(self._file.with_overrides(usable))
        except ConfigError as error:
            log.error("dynamic config of broker %s is passed over: %s", self._file.node_id, error)

    @staticmethod
    def _check_key(key: Key | None, name: str, *, per_broker: bool) -> None:
        if key is None:
            if protects(name) is None:
                return  # as Kafka: a key that nobody knows may be meant for a plug-in
            raise ConfigError(f"Cannot update these configs dynamically: [{name}]")
        is_of_listener = name != key.name and key.name not in LISTENER_KEYS
        if not per_broker and (is_of_listener or key.mode is Mode.PER_BROKER):
            raise ConfigError(
                f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
            )
        if not key.live:
            raise ConfigError(f"Cannot update these configs dynamically: [{name}]")


def _live(overrides: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in overrides.items() if name in BROKER_KEYS and BROKER_KEYS[name].live}


def _usable(overrides: Mapping[str, str], keys: Mapping[str, Key], owner: str) -> dict[str, str]:
    """Return the settings whose values can be parsed (rule 2)."""
    usable = {}
    for name, text in overrides.items():
        try:
            if name in keys:
                keys[name].parse(text)
                usable[name] = text
        except ConfigError as error:
            log.error("dynamic config of %s is passed over: %s", owner, error)
    return usable


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return the broker keys that say the same as `name`, the strongest first."""
    return BROKER_SYNONYMS.get(name, (name,))


class HasLimits(Protocol):
    """The part of a replication throttle that is needed here."""

    def set_limit(self, bytes_per_s: int) -> None:
        """Allow so many bytes a second from now on."""

    def throttle(self, topic: str, replicas: Iterable[str], broker_id: int) -> None:
        """Throttle these replicas of a topic and no others."""


def keep_throttled(dynamic: DynamicConfig, leader: HasLimits, follower: HasLimits) -> None:
    """Have the replication throttles follow the configs of topics and of this broker; called before the start."""
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


def keep_logs_configured(dynamic: DynamicConfig, logs: HasLogs) -> None:
    """Have every log take its new config when its topic's, or the broker's, changes; called before the start."""

    def update(resource: Resource) -> None:
        if resource.type == ResourceType.TOPIC:
            changed = [log for log in logs.all_logs() if log.topic_partition.topic == resource.name]
        elif resource.type == ResourceType.BROKER:
            changed = list(logs.all_logs())
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
