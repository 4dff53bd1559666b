"""ConfigDescriber: the configs of a resource, and the source of each value, for DescribeConfigs.

A value has synonyms: the places that could define it, the strongest first. The first one defines it. For a broker key
these are: this broker's dynamic config, the dynamic config of all brokers, the file, the default. For a topic or group
key: the resource's own config, then the synonyms of the corresponding broker key. As in Kafka, another unit of a key
(log.retention.hours), and the key behind that of a listener, count only after the key itself is found somewhere.

Threads: any.
Source: ConfigHelper (Kafka 4.3), KIP-226, KIP-524, KIP-569.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.broker.settings.dynamic_config import synonyms_of
from barnabas.common import logs
from barnabas.config.listeners import base_name
from barnabas.config.resources.client_metrics import CLIENT_METRICS_KEYS
from barnabas.config.secrets.sensitive import AUTHORIZER_KEYS, broker_row
from barnabas.config.table.keys import BROKER_KEYS, DYNAMIC_KEYS, GROUP_KEYS, REQUIRED, TOPIC_KEYS, Key

if TYPE_CHECKING:
    from barnabas.config import Config, GroupConfig, TopicConfig
    from barnabas.config.resources.client_metrics import ClientMetricsConfig
    from barnabas.config.resources.overridable import Overridable


#: The keys that every broker has: Kafka's brokers do not know those of the authorizer.
_OWN_KEYS: Final = {name: key for name, key in BROKER_KEYS.items() if name not in AUTHORIZER_KEYS}


#: Keys of one mechanism of a listener that have the plain key as a synonym. Kafka: LISTENER_MECHANISM_CONFIGS.
_MECHANISM_KEYS: Final = frozenset(
    {
        "connections.max.reauth.ms",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.server.callback.handler.class",
    }
)


class Source(IntEnum):
    """The source of a value, with DescribeConfigs' numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """A place that could define a value; `value` is None if it is hidden or null."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """One config of a resource."""

    name: str
    value: str | None
    source: Source
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[Synonym, ...] = ()
    type: int = 0
    doc: str | None = None


class ConfigSource(Protocol):
    """The configs that one node knows: a broker's DynamicConfig, or a controller's metadata."""

    @property
    def broker_id(self) -> int:
        """The id of this node."""

    @property
    def config(self) -> Config:
        """The values in force."""

    def static(self) -> Mapping[str, str]:
        """Return the configs of the file."""

    def broker_overrides(self) -> Mapping[str, str]:
        """Return the dynamic configs of this node alone."""

    def cluster_overrides(self) -> Mapping[str, str]:
        """Return the dynamic configs of all brokers."""

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the config of a topic."""

    def group_config(self, group: str) -> GroupConfig:
        """Return the config of a group."""

    def client_metrics_config(self, name: str) -> ClientMetricsConfig:
        """Return the config of a client metrics subscription."""


class ConfigDescriber:
    """Describes resources, as one node knows them."""

    def __init__(self, dynamic: ConfigSource) -> None:
        self._dynamic = dynamic  # fixed before start

    def topic(self, name: str) -> list[Entry]:
        """Return every config of a topic."""
        topic = self._dynamic.topic_config(name)
        return [
            self._overridable(key, topic, Source.TOPIC)
            for key in TOPIC_KEYS.values()
            if not key.internal or key.name in topic.overrides
        ]

    def group(self, name: str) -> list[Entry]:
        """Return every config of a group."""
        group = self._dynamic.group_config(name)
        return [self._overridable(key, group, Source.GROUP) for key in GROUP_KEYS.values()]

    def broker(self) -> list[Entry]:
        """Return every config of this broker, including unknown keys (with hidden values)."""
        config = self._dynamic.config
        set_here = {
            **self._dynamic.static(), **self._dynamic.cluster_overrides(), **self._dynamic.broker_overrides()
        }  # fmt: skip
        known = [
            self._broker_entry(key, key.to_text(config.values[key.name]))
            for key in _OWN_KEYS.values()
            if not key.internal or key.name in set_here
        ]
        return known + [self._other_entry(name, text) for name, text in set_here.items() if name not in _OWN_KEYS]

    def all_brokers(self) -> list[Entry]:
        """Return the dynamic configs of all brokers."""
        entries = []
        for name, text in self._dynamic.cluster_overrides().items():
            entry = (
                self._broker_entry(BROKER_KEYS[name], text) if name in BROKER_KEYS else self._other_entry(name, text)
            )
            synonyms = tuple(s for s in entry.synonyms if s.source is Source.DYNAMIC_DEFAULT_BROKER)
            source = synonyms[0].source if synonyms else Source.DEFAULT
            entries.append(entry._replace(synonyms=synonyms, source=source))
        return entries

    def client_metrics(self, name: str) -> list[Entry]:
        """Return every config of a client metrics subscription, whether or not anybody made it."""
        config = self._dynamic.client_metrics_config(name)
        return [self._overridable(key, config, Source.CLIENT_METRICS) for key in CLIENT_METRICS_KEYS.values()]

    @staticmethod
    def loggers() -> list[Entry]:
        """Return the loggers of this process and their levels."""
        return [Entry(name, logs.level_of(name), Source.DYNAMIC_BROKER_LOGGER, doc="") for name in logs.logger_names()]

    def _overridable(self, key: Key, config: Overridable, own: Source) -> Entry:
        text = key.to_text(config.values[key.name])
        synonyms: list[Synonym] = []
        if key.synonyms:
            synonyms += self._synonyms(BROKER_KEYS[key.synonyms[0][0]])
        elif own is Source.GROUP:
            synonyms.append(Synonym(key.name, key.to_text(key.default), Source.DEFAULT))
        if key.name in config.overrides:
            synonyms.insert(0, Synonym(key.name, text, own))
        return _entry(key, text, synonyms, is_read_only=False)

    def _broker_entry(self, key: Key, text: str | None) -> Entry:
        return _entry(key, text, self._synonyms(key), is_read_only=not key.live)

    def _other_entry(self, name: str, text: str) -> Entry:
        """Describe a key outside BROKER_KEYS: a listener's own, one of DYNAMIC_KEYS, or an unknown key.

        The value of an unknown key is hidden, since it might be a secret. As in Kafka, only DYNAMIC_KEYS are not
        read-only.
        """
        row = broker_row(name)
        key = None if row is None or row.name in AUTHORIZER_KEYS else row
        is_hidden = key is None or key.sensitive
        names = [name] if key is None or not _is_for(name, key.name) else [name, key.name]
        places = (
            (self._dynamic.broker_overrides(), Source.DYNAMIC_BROKER),
            (self._dynamic.cluster_overrides(), Source.DYNAMIC_DEFAULT_BROKER),
            (self._dynamic.static(), Source.STATIC_BROKER),
            (_default_texts(names[1:]), Source.DEFAULT),
        )
        synonyms = [
            Synonym(each, None if is_hidden else texts[each], source)
            for texts, source in places
            for each in names
            if each in texts
        ]
        while synonyms[0].name != name:  # as in Kafka, a base key counts only after the key itself
            del synonyms[0]
        return Entry(
            name,
            None if is_hidden else text,
            synonyms[0].source,
            is_sensitive=is_hidden,
            is_read_only=name not in DYNAMIC_KEYS,
            synonyms=tuple(synonyms),
            type=0 if key is None else int(key.type),
            doc=None if key is None else key.doc,
        )

    def _synonyms(self, key: Key) -> list[Synonym]:
        names = synonyms_of(key.name)
        found = [
            *self._found(self._dynamic.broker_overrides(), names, Source.DYNAMIC_BROKER),
            *self._found(self._dynamic.cluster_overrides(), names, Source.DYNAMIC_DEFAULT_BROKER),
            *self._found(self._file_texts(names), names, Source.STATIC_BROKER),
            *self._found(_default_texts(names), names, Source.DEFAULT),
        ]
        while found and found[0].name != key.name:
            del found[0]
        return found

    def _file_texts(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the file's values of these keys; node.id and broker.id are interchangeable."""
        static = self._dynamic.static()
        texts = {name: static[name] for name in names if name in static}
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name in names and name not in texts and other in static:
                texts[name] = static[other]
        return texts

    @staticmethod
    def _found(texts: Mapping[str, str], names: Iterable[str], source: Source) -> list[Synonym]:
        return [
            Synonym(name, None if BROKER_KEYS[name].sensitive else texts[name], source)
            for name in names
            if name in texts
        ]


def _is_for(name: str, base: str) -> bool:
    """Return whether `base` is the key behind that of one listener, or of one mechanism of a listener."""
    return name != base and (base_name(name) == base or base in _MECHANISM_KEYS)


def _default_texts(names: Iterable[str]) -> dict[str, str]:
    texts = {}
    for name in names:
        key = BROKER_KEYS[name]
        if key.default is not None and key.default != REQUIRED:
            texts[name] = key.to_text(key.default) or ""
    return texts


def _entry(key: Key, text: str | None, synonyms: list[Synonym], *, is_read_only: bool) -> Entry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return Entry(
        name=key.name,
        value=None if key.sensitive else text,
        source=source,
        is_sensitive=key.sensitive,
        is_read_only=is_read_only,
        synonyms=tuple(synonyms),
        type=int(key.type),
        doc=key.doc,
    )
