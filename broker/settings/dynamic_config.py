"""DynamicConfig: the dynamic configs from the controller's pushes, and the listeners to their changes.

Rules
1. For a broker key, a value for this broker overrides the value for all brokers, and both override the file.
2. AlterConfigs checks a change (`check_broker_change`); a push is already decided. If a pushed value cannot be used
   after all, or not together with the others, it alone is ignored, and one log line names it. The file may have changed
   since it was set. What is in force goes before what is new.
3. Only keys that are `live` in the table of keys are applied. DescribeConfigs shows the others as read-only.
4. Settings without effect, and unknown keys, are accepted as in Kafka, and logged with one line for each reason. A
   setting that should protect something, but has no effect, is refused.
5. Listeners are called after the new values are in place, holding no lock. One that fails is logged, and keeps the
   change from no other.

Threads: the handler of a push calls `apply_records`, one at a time. Before the first one, the lifecycle thread calls
`apply_first`. Any thread calls the rest.
Source: DynamicBrokerConfig, ConfigRepository (Kafka 4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from barnabas.common.clock import Clock, SystemClock
from barnabas.common.logs import LogLimit
from barnabas.config.effect import protects, warnings, warnings_of_listeners
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import (
    LISTENER_LIMITS,
    LOGIN_PROTOCOLS,
    LOGINS_AT_RUN_TIME,
    PLAINTEXT,
    RENEWAL_KEYS,
    SSL_KEYS,
    SSL_STORE_KEYS,
    base_name,
    is_for_logins,
    listener_of,
)
from barnabas.config.resources.client_metrics import CLIENT_METRICS_KEYS, ClientMetricsConfig
from barnabas.config.secrets.sensitive import broker_row
from barnabas.config.table.keys import BROKER_KEYS, BROKER_SYNONYMS, DYNAMIC_KEYS, TOPIC_KEYS, Key, Mode, Scope

if TYPE_CHECKING:
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.config import Config, GroupConfig, TopicConfig

log = logging.getLogger("barnabas.config")

ALL_BROKERS: Final = ""
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


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


#: A file may say 0. Set while a broker runs, nobody could connect any more to take it back.
_POSITIVE_AT_RUN_TIME: Final = ("max.connections", "max.connection.creation.rate")

Listener = Callable[[Resource], None]
Overrides = Mapping[Resource, Mapping[str, str]]
Check = Callable[["Config"], None]


class DynamicConfig:
    """The dynamic configs of every resource, as of the last push."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.refusals = LogLimit(log, (clock or SystemClock()).monotonic_ns)  # of changes that clients ask for
        self.config = config  # fixed before start; its values are replaced by apply_records
        self._file = config.with_overrides({})  # fixed before start
        used = {name.upper() for name in (*config.controller_listener_names, config.inter_broker_listener_name)}
        self._protocols = {  # fixed before start; of the listeners that the broker has or connects to
            **{name: config.listener_protocols.get(name, PLAINTEXT) for name in used},
            **{listener.name: listener.security_protocol for listener in config.listeners_parsed},
        }
        self._lock = threading.Lock()
        self._overrides: Overrides = {}  # replaced whole under _lock
        self.version = 0  # the number of replacements of _overrides; written under _lock
        self._listeners: list[Listener] = []  # fixed before start
        self._checks: list[Check] = []  # fixed before start
        self._unusable: frozenset[str] = frozenset()  # guarded by: _lock; the lines about broker configs

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
        """Return the config of a group, as it is described."""
        return self.config.group_config(self.overrides(ResourceType.GROUP, group))

    def effective_group_config(self, group: str) -> GroupConfig:
        """Return the config with which this broker coordinates a group."""
        return self.config.effective_group_config(self.group_config(group))

    def client_metrics_config(self, name: str) -> ClientMetricsConfig:
        """Return the config of a client metrics subscription; an unusable value is logged and ignored."""
        overrides = self.overrides(ResourceType.CLIENT_METRICS, name)
        return ClientMetricsConfig(_usable(overrides, CLIENT_METRICS_KEYS, f"client metrics {name}"))

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
                try:
                    listener(resource)
                except Exception:  # Why: the others need it, and the same value is not a change when it comes again
                    log.exception("a part of the broker cannot apply the changed config of %.200r", resource)

    def apply_first(self, records: Iterable[ConfigRecord]) -> None:
        """Apply the configs of this broker before the first push, which waits for that; later it has them all."""
        if self.version == 0:
            self.apply_records(records, is_full=False)

    def _warn(self, before: Overrides, changed: Iterable[Resource]) -> None:
        """Log which of the new settings have no effect."""
        found: dict[Scope, set[str]] = {}
        for resource in changed:
            scope = _SCOPES.get(resource.type)
            if scope is None or (scope is Scope.BROKER and not self._concerns_broker(resource)):
                continue
            old, new = before.get(resource, {}), self._overrides.get(resource, {})
            found.setdefault(scope, set()).update(name for name in new if new[name] != old.get(name))
            if resource.type == ResourceType.GROUP:
                self._warn_of_bounds(resource.name)
        for scope, names in found.items():
            for line in self._lines_of_broker(names) if scope is Scope.BROKER else warnings(scope, names):
                log.warning("%s config: %s", scope.value, line)
        if Scope.BROKER in found and MIN_INSYNC_REPLICAS in found[Scope.BROKER]:
            self._warn_of_min_isr()

    def _warn_of_bounds(self, group: str) -> None:
        """Log which values of a group are outside this broker's bounds."""
        try:
            described, effective = self.group_config(group).values, self.effective_group_config(group).values
        except ConfigError:
            return  # who uses the config says so
        for name, value in described.items():
            used = effective[name]
            if used != value:
                side = "above this broker's maximum" if value > used else "below this broker's minimum"
                log.warning("group config: %s of group %r is %s, %s: %s is used", name, group, value, side, used)

    def _lines_of_broker(self, names: Iterable[str]) -> Iterator[str]:
        is_without_logins = set(self._protocols.values()).isdisjoint(LOGIN_PROTOCOLS)
        return warnings_of_listeners(names, self._protocols, is_without_logins=is_without_logins)

    def _warn_of_min_isr(self) -> None:
        """Log that the file's min.insync.replicas is not in force.

        Why this key: a new cluster has a value of its own, which nobody has set (KIP-966).
        """
        in_file, in_force = (values.get(MIN_INSYNC_REPLICAS) for values in (self._file.originals, self.config.current))
        if in_file not in (None, in_force) and MIN_INSYNC_REPLICAS not in self.broker_overrides():
            log.warning(
                "broker config: %s=%s of the file has no effect: all brokers have %s, by kafka-configs or since the "
                "cluster was created", MIN_INSYNC_REPLICAS, in_file, in_force,
            )  # fmt: skip

    def check_broker_change(self, name: str, wanted: Mapping[str, str]) -> None:
        """Raise ConfigError unless the broker resource `name` ("" for all brokers) may have these configs."""
        for key_name, text in wanted.items():
            self._check_broker_text(name, key_name, text)
        cluster = wanted if name == ALL_BROKERS else self.usable_overrides(ALL_BROKERS)
        own = self.usable_overrides(str(self.broker_id)) if name == ALL_BROKERS else wanted
        changed = self._changed(self._live({**cluster, **own}))
        for check in self._checks:
            check(changed)

    def _changed(self, texts: Mapping[str, str]) -> Config:
        """Return the config with these settings; raises ConfigError. Stored ones that are ignored block no change."""
        try:
            return self._file.with_overrides(texts)
        except ConfigError:
            in_force = self.config.current
            stored = {**self.cluster_overrides(), **self.broker_overrides()}
            kept = {
                name: text for name, text in texts.items() if text == in_force.get(name) or text != stored.get(name)
            }
            if len(kept) == len(texts):
                raise
            return self._file.with_overrides(kept)

    def usable_overrides(self, name: str) -> dict[str, str]:
        """Return the configs of a broker resource, without those that `check_broker_change` would refuse by themselves.

        A controller may have accepted such ones from an administrator; they must not block other changes.
        """
        found = {}
        for key_name, text in self.overrides(ResourceType.BROKER, name).items():
            try:
                self._check_broker_text(name, key_name, text)
            except ConfigError:
                continue
            found[key_name] = text
        return found

    def _check_broker_text(self, name: str, key_name: str, text: str) -> None:
        key = broker_row(key_name)
        self._check_key(key, key_name, per_broker=name != ALL_BROKERS)
        if key is not None:
            _check_text(key, text)

    def _concerns_broker(self, resource: Resource) -> bool:
        return resource.type == ResourceType.BROKER and resource.name in (ALL_BROKERS, str(self._file.node_id))

    def _refresh(self) -> None:
        """Install the new values of the live keys (rules 1 and 3)."""
        merged = {**self.cluster_overrides(), **self.broker_overrides()}
        unusable: list[str] = []
        usable = _usable(self._live(merged), BROKER_KEYS, f"broker {self._file.node_id}", unusable.append)
        self.config.replace(self._consistent(usable, unusable.append))
        for line in unusable:
            if line not in self._unusable:
                log.error("%s", line)
        self._unusable = frozenset(unusable)

    def _consistent(self, usable: Mapping[str, str], report: Callable[[str], None]) -> Config:
        """Return the config with these settings, without those that contradict the file or the others (rule 2)."""
        in_force = self.config.current
        names = sorted(usable, key=lambda name: (in_force.get(name) != usable[name], name))
        found, rejected = self._add(self._file.with_overrides({}), usable, names)
        while rejected:  # Why again: what was rejected may need another one, which came later
            found, again = self._add(found, usable, [name for name, _ in rejected])
            if len(again) == len(rejected):
                break
            rejected = again
        for name, error in rejected:
            report(f"dynamic config {name} of broker {self._file.node_id} is ignored: {error}")
        return found

    def _add(
        self, found: Config, texts: Mapping[str, str], names: Sequence[str]
    ) -> tuple[Config, list[tuple[str, ConfigError]]]:
        """Return a config with these settings too, and those that it cannot have. Few tries, if few are rejected."""
        if not names:
            return found, []
        try:
            added = {name: texts[name] for name in names}
            return self._file.with_overrides({**found.originals, **added}), []
        except ConfigError as error:
            if len(names) == 1:
                return found, [(names[0], error)]
        half = len(names) // 2
        found, rejected = self._add(found, texts, names[:half])
        found, more = self._add(found, texts, names[half:])
        return found, rejected + more

    def _live(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Return what can change at run time, without settings that no listener has a use for.

        Why without: the file may have lost a listener, or its SASL, since they were set.
        """
        return {name: text for name, text in overrides.items() if _live_row(name) is not None and self._has_use(name)}

    def _has_use(self, name: str) -> bool:
        """Return whether the listener of a key, or any, is there, and has logins if the key is about logins."""
        listener, row = listener_of(name), broker_row(name)
        protocols = [p for n, p in self._protocols.items() if listener in (None, n)]
        is_login = row is not None and is_for_logins(row.name)
        return any(not is_login or protocol.startswith("SASL_") for protocol in protocols)

    def _check_key(self, key: Key | None, name: str, *, per_broker: bool) -> None:
        of_one_broker = f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
        if key is None:
            if protects(name) is not None:
                raise ConfigError(f"Cannot update these configs dynamically: [{name}]")
            if not per_broker and listener_of(name) is not None:
                raise ConfigError(of_one_broker)
            return  # as in Kafka: an unknown key may belong to a plug-in
        if name in SSL_STORE_KEYS:
            raise ConfigError(
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                f"[{name}]"
            )
        is_of_listener = name != key.name and key.name not in LISTENER_LIMITS
        if not per_broker and (is_of_listener or key.mode is Mode.PER_BROKER):
            raise ConfigError(of_one_broker)
        if key.name not in DYNAMIC_KEYS and _live_row(name) is None:
            raise ConfigError(f"Cannot update these configs dynamically: [{name}]")
        if is_for_logins(key.name) and key.name not in RENEWAL_KEYS and not self._has_use(name):
            raise ConfigError(f"{name} has no effect: no listener that it is for uses SASL")


def _live_row(name: str) -> Key | None:
    """Return the row of a broker key that can change at run time, plain or of one listener; None for other keys."""
    row = BROKER_KEYS.get(name)
    if row is not None:
        return row if row.live else None
    row = broker_row(name)
    if row is None:
        return None
    if is_for_logins(row.name):  # these may be for one mechanism
        return row if row.live or row.name in LOGINS_AT_RUN_TIME else None
    return row if base_name(name) in (*LISTENER_LIMITS, *SSL_KEYS) and row.live else None


def _usable(
    overrides: Mapping[str, str], keys: Mapping[str, Key], owner: str, report: Callable[[str], None] = log.error
) -> dict[str, str]:
    """Return the usable configs of a resource; report the others (rule 2)."""
    return usable(
        overrides,
        lambda name: keys.get(name) or _live_row(name),
        lambda name, error: report(f"dynamic config {name} of {owner} is ignored: {error}"),
    )


def usable(
    texts: Mapping[str, str], row_of: Callable[[str], Key | None], report: Callable[[str, ConfigError], object]
) -> dict[str, str]:
    """Return the configs that have a row and whose values can be parsed; report those that cannot."""
    found = {}
    for name, text in texts.items():
        try:
            key = row_of(name)
            if key is not None:
                _check_text(key, text)
                found[name] = text
        except ConfigError as error:
            report(name, error)
    return found


def _check_text(key: Key, text: str) -> None:
    """Raise ConfigError for a value that the key cannot have at run time."""
    value = key.parse(text)
    if key.name in _POSITIVE_AT_RUN_TIME and value <= 0:
        raise ConfigError(f"Invalid {key.name} {value}")


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
