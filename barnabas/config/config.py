"""Config: the settings of one process, cheap to read and replaced as a whole.

`config.num_io_threads` is the value of `num.io.threads`, a plain attribute. Where several keys configure one thing, the
attribute of the strongest key holds the result: `log_dirs` (log.dirs, else log.dir), `metadata_log_dir`,
`log_retention_ms`, `log_roll_ms`, `log_roll_jitter_ms`, `log_flush_interval_ms`, `node_id` and `broker_id`,
`inter_broker_listener_name`. `originals` holds the texts of the file, `current` those in force (the file's, and over
them what was set at run time), `values` the parsed values by key.

A process with both roles has one config for each, from one file. `listeners_parsed` and `advertised_listeners_parsed`
are then those of the role, and `all_listeners` has both kinds.

Rules
1. A change at run time builds a whole new state and installs it in one assignment. A reader sees the old values or the
   new ones, and takes no lock.
2. Variables are replaced by the values of the config providers first (`secrets/`). `originals` hold the result, so a
   provider is asked once, at the start.
3. Keys without effect, unknown ones included, are warned of once (`effect.py`). An invalid value is a ConfigError of
   one line, and so is a setting that is meant to protect but would not.

Threads: all read; the one thread that applies the controller's pushes calls `replace`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.config import checks
from barnabas.config.effect import warnings_of_file
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import (
    LISTENER_KEYS,
    LOGIN_PROTOCOLS,
    PLAINTEXT,
    PROTOCOLS,
    TLS_PROTOCOLS,
    Listener,
    base_name,
    is_any_address,
    parse_addresses,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from barnabas.config.properties import from_environment, parse_properties
from barnabas.config.resources.group import GroupConfig, bounded_values, check_group
from barnabas.config.resources.overridable import inherited, reject_nulls
from barnabas.config.resources.topic import TopicConfig, check_topic
from barnabas.config.secrets import exposed
from barnabas.config.secrets.sensitive import HIDDEN, broker_row
from barnabas.config.secrets.variables import Resolved, resolve
from barnabas.config.table.keys import BROKER_KEYS, GROUP_KEYS, REQUIRED, TOPIC_KEYS

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("barnabas.config")

BROKER: Final = "broker"
CONTROLLER: Final = "controller"

#: The different configs of topics that a process keeps to share.
SHARED_MAX: Final = 1_000

UNLIMITED_MS: Final = -1
_CONTROLLER_PORT: Final = 9093
_warned: set[str] = set()  # guarded by: the GIL's or the set's own lock; a race only warns twice


class Config:
    """The settings of one process, by attribute; see the module's docstring.

    `topic_defaults`, `group_defaults`: the values of a topic or group without overrides, by topic or group key.
    """

    originals: Mapping[str, str]
    current: Mapping[str, str]
    values: Mapping[str, Any]
    role: str | None
    listeners_parsed: tuple[Listener, ...]
    all_listeners: tuple[Listener, ...]
    advertised_listeners_parsed: tuple[Listener, ...]
    listener_protocols: Mapping[str, str]
    inter_broker_listener_name: str
    log_dirs: tuple[str, ...]
    topic_defaults: Mapping[str, Any]
    group_defaults: Mapping[str, Any]

    def __init__(self, originals: Mapping[str, str], role: str | None = None) -> None:
        self.__dict__ = _State(originals, role).attributes()

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, object], role: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Config:
        """Build a config from keys and values; with a `role` also check its requirements.

        `environment` is what an EnvVarConfigProvider reads, by default that of the process.
        """
        texts = {name: str(value) for name, value in properties.items()}
        return cls._from_resolved(resolve(texts, os.environ if environment is None else environment), role)

    @classmethod
    def _from_resolved(cls, resolved: Resolved, role: str | None) -> Config:
        """Build a config from properties whose variables are replaced. An error shows no value of a provider."""
        for name in resolved.replaced:
            row = broker_row(name)
            try:
                if row is not None:
                    row.parse(resolved.properties[name])
            except ConfigError:
                raise ConfigError(f"Invalid value {HIDDEN}, from a provider, for configuration {name}") from None
        config = cls(resolved.properties, role)
        warn(config, resolved.warnings)
        return config

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        role: str | None = None,
        overrides: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Config:
        """Read a properties file. Environment variables override it, and `overrides` override both."""
        file, written = _properties(path)
        properties = {**written, **from_environment(environment or {}), **(overrides or {})}
        resolved = resolve(properties, os.environ if environment is None else environment)
        config = cls._from_resolved(resolved, role)
        if role is not None:
            for line in exposed.warnings(file, written, overrides or {}, resolved):
                log.warning("%s", line)
        return config

    @classmethod
    def roles_of(
        cls, path: str | Path, *, overrides: Mapping[str, str], environment: Mapping[str, str]
    ) -> frozenset[str]:
        """Return `process.roles` of a file, environment and overrides, without asking providers; raises ConfigError."""
        text = {**_properties(path)[1], **from_environment(environment), **overrides}.get("process.roles")
        if text is None:
            raise ConfigError('Missing required configuration "process.roles" which has no default value.')
        return frozenset(BROKER_KEYS["process.roles"].parse(text))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no config key has the attribute {name}")

    @property
    def is_combined(self) -> bool:
        """Whether the process is a broker and a controller."""
        return set(self.process_roles) == {BROKER, CONTROLLER}

    @property
    def shares_metadata_directory(self) -> bool:
        """Whether the metadata log is in a log directory of a broker in the same process."""
        return self.is_combined and self.metadata_log_dir in self.log_dirs

    def require_one_role(self) -> None:
        """Raise ConfigError for a file with both roles; for commands that run one of them."""
        if self.is_combined:
            raise ConfigError(
                f"process.roles={','.join(self.process_roles)} names two roles: `barnabas server FILE` runs both "
                "in one process"
            )

    def of_role(self, role: str) -> Config:
        """Return the config of the other role of this process, without asking the providers again."""
        return Config(self.originals, role)

    def value(self, name: str) -> Any:
        """Return the value of a broker key by its name."""
        return self.values[name]

    def with_overrides(self, dynamic: Mapping[str, str]) -> Config:
        """Return a config with these settings over those of the file; raise ConfigError if it would be invalid."""
        return Config({**self.originals, **dynamic}, self.role)

    def replace(self, other: Config) -> None:
        """Take over the values of `other` in one step; `originals` stay those of the file."""
        state = dict(other.__dict__)
        state["originals"] = self.originals
        self.__dict__ = state

    def controller_bootstrap(self) -> list[tuple[str, int]]:
        """Return the addresses (host, port) of the controllers: the bootstrap servers, then the other voters."""
        bootstrap = self.values["controller.quorum.bootstrap.servers"]
        servers = parse_addresses("controller.quorum.bootstrap.servers", bootstrap) if bootstrap else ()
        return list(dict.fromkeys([*servers, *self.controller_voters().values()]))

    def controller_voters(self) -> dict[int, tuple[str, int]]:
        """Return the addresses (host, port) of the static voters by their ids; empty without them."""
        return parse_voters(self.values["controller.quorum.voters"])

    def controller_endpoint(self) -> tuple[str, str, int] | None:
        """Return the listener, host and port at which controllers reach this one: of the voters, or as advertised."""
        name = str(self.values["controller.listener.names"][0]).upper()
        voter = self.controller_voters().get(int(self.node_id))
        if voter is not None:
            return (name, *voter)
        advertised = self.advertised_listeners_parsed or self.listeners_parsed
        return next(((each.name, each.host, each.port) for each in advertised if each.name == name), None)

    def topic_config(self, overrides: Mapping[str, str] | None = None) -> TopicConfig:
        """Return the config of a topic that has these overrides (unknown names are ignored).

        Topics with the same overrides share one: it is as large as the rest of an empty partition.
        """
        state = self.__dict__  # Why: `replace` puts another one in its place
        shared: dict[tuple[tuple[str, str], ...], TopicConfig] = state["shared_topic_configs"]
        key = tuple(overrides.items()) if overrides else ()
        found = shared.get(key)
        if found is None:
            found = TopicConfig(state["topic_defaults"], overrides or {})
            if len(shared) < SHARED_MAX:
                shared[key] = found
        return found

    def group_config(self, overrides: Mapping[str, str] | None = None) -> GroupConfig:
        """Return the config of a group that has these overrides (unknown names are ignored)."""
        return GroupConfig(self.group_defaults, overrides or {})

    def effective_group_config(self, group: GroupConfig) -> GroupConfig:
        """Return the config with which this broker coordinates a group: own values are kept within its bounds."""
        bounded = bounded_values(group, self.value) if group.overrides else {}
        texts = {name: str(value) for name, value in bounded.items()}
        return self.group_config({**group.overrides, **texts}) if texts else group

    def validate_topic(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """Check a topic's overrides as the controller does; raise ConfigError, the message for INVALID_CONFIG."""
        texts = reject_nulls(overrides, "topic")
        for name in texts:
            if name not in TOPIC_KEYS:
                raise ConfigError(f"Unknown topic config name: {name}")
        topic = self.topic_config(texts)
        check_topic(topic)
        return topic

    def validate_group(self, overrides: Mapping[str, str | None]) -> GroupConfig:
        """Check a group's overrides as the controller does; raise ConfigError, the message for INVALID_CONFIG."""
        texts = reject_nulls(overrides, "group")
        for name in texts:
            if name not in GROUP_KEYS:
                raise ConfigError(f"Unknown group config name: {name}")
        group = self.group_config(texts)
        check_group(group, self.value)
        return group


def _properties(path: str | Path) -> tuple[Path, dict[str, str]]:
    """Return a file and its properties; raises ConfigError."""
    from pathlib import Path  # Why here: it brings more modules than the table of keys has

    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # Java reads every file so
    return Path(path), parse_properties(text)


def warn(config: Config, more: Iterable[str] = ()) -> None:
    """Log which settings of the file have no effect, and `more` lines; each line once in a process."""
    listeners = {listener.name for listener in config.all_listeners} | set(config.controller_listener_names)
    used = {config.listener_protocols.get(name.upper(), PLAINTEXT) for name in listeners}
    is_without_tls = config.role == BROKER and used.isdisjoint(TLS_PROTOCOLS)
    # Why: a controller connects to brokers' listeners, of which it knows only the map.
    peers = config.listener_protocols if config.role == CONTROLLER else ()
    used.add(config.listener_protocols.get(config.inter_broker_listener_name.upper(), PLAINTEXT))
    is_without_logins = used.isdisjoint(LOGIN_PROTOCOLS)
    found = warnings_of_file(
        config.originals, listeners, peers=peers, is_without_tls=is_without_tls, is_without_logins=is_without_logins
    )
    for line in (*found, *_warnings_of_role(config), *more):
        if line not in _warned:
            _warned.add(line)
            log.warning("%s", line)


def _warnings_of_role(config: Config) -> Iterator[str]:
    """Yield a line for each setting that has no effect in this process, as others are set."""
    if config.role != BROKER:
        return
    if config.transaction_two_phase_commit_enable and not config.unstable_api_versions_enable:
        yield (
            "transaction.two.phase.commit.enable has no effect: InitProducerId v6 is unstable, and needs "
            "unstable.api.versions.enable=true"
        )
    policies = ("alter.config.policy.class.name", "create.topic.policy.class.name")
    for key in policies if CONTROLLER not in config.process_roles else ():
        if config.value(key):
            yield f"{key} has no effect on a broker: controllers ask policies"


class _State:
    """Builds the attributes of a Config from the texts of its keys."""

    def __init__(self, originals: Mapping[str, str], role: str | None) -> None:
        self.originals = dict(originals)
        self.role = role
        self.values = self._parse()
        self._fill_in()
        controllers = self.values["controller.listener.names"]
        names = {uri.partition(":")[0].upper() for uri in self.values["listeners"]} | set(map(str.upper, controllers))
        self.protocols = parse_protocol_map(
            self.values["listener.security.protocol.map"],
            controllers,
            is_default="listener.security.protocol.map" not in originals
            and names.isdisjoint(set(PROTOCOLS) - {PLAINTEXT}),
        )
        self.all_listeners = self.listeners = parse_listeners("listeners", self.values["listeners"], self.protocols)
        advertised = self.values["advertised.listeners"]
        self.advertised = (
            self._as_advertised(self.listeners)
            if advertised is None
            else parse_listeners("advertised.listeners", advertised, self.protocols)
        )
        of_controllers = {name.upper() for name in controllers}
        if self._is_combined and self.role is not None:
            self._keep_own_listeners(of_controllers)
        elif self.role == BROKER:
            self.advertised = tuple(each for each in self.advertised if each.name not in of_controllers)

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the config."""
        values = self.values
        state = {key.attribute: values[name] for name, key in BROKER_KEYS.items()}
        topic = inherited(TOPIC_KEYS, values.__getitem__)
        topic["retention.ms"] = max(topic["retention.ms"], UNLIMITED_MS)  # less is unlimited, too
        state.update(
            originals=self.originals,
            current=self.originals,
            values=values,
            role=self.role,
            listeners_parsed=self.listeners,
            all_listeners=self.all_listeners,
            advertised_listeners_parsed=self.advertised,
            listener_protocols=self.protocols,
            inter_broker_listener_name=self._inter_broker_listener_name(),
            log_dirs=values["log.dirs"] or values["log.dir"],
            metadata_log_dir=values["metadata.log.dir"] or (values["log.dirs"] or values["log.dir"])[0],
            log_retention_ms=topic["retention.ms"],
            log_roll_ms=topic["segment.ms"],
            log_roll_jitter_ms=topic["segment.jitter.ms"],
            log_flush_interval_ms=topic["flush.ms"],
            topic_defaults=topic,
            shared_topic_configs={},
            group_defaults=inherited(GROUP_KEYS, values.__getitem__),
        )
        checks.check(state, self.originals)
        return state

    @property
    def _is_combined(self) -> bool:
        return set(self.values["process.roles"]) == {BROKER, CONTROLLER}

    @property
    def _is_controller_only(self) -> bool:
        return self.role == CONTROLLER and not self._is_combined

    def _keep_own_listeners(self, controllers: set[str]) -> None:
        """Leave out the listeners of the other role; one of a controller is advertised even if it is not listed."""
        is_controller = self.role == CONTROLLER
        self.listeners = tuple(each for each in self.listeners if (each.name in controllers) == is_controller)
        self.advertised = tuple(each for each in self.advertised if (each.name in controllers) == is_controller)
        if is_controller:
            listed = {each.name for each in self.advertised}
            self.advertised += self._as_advertised(each for each in self.listeners if each.name not in listed)

    def _as_advertised(self, listeners: Iterable[Listener]) -> tuple[Listener, ...]:
        """Return listeners as they are advertised: a controller's at any address by the host's name.

        Kafka does so with 0.0.0.0, and advertises [::] as it is. Why not we: no other machine reaches that.
        """
        is_controller = self.role == CONTROLLER
        return tuple(
            each._replace(host="") if is_controller and is_any_address(each.host) else each for each in listeners
        )

    def _parse(self) -> dict[str, Any]:
        """Return the value of every broker key; required ones that are missing stay REQUIRED.

        Values for one listener are only checked: the listener's component reads them from `originals`.
        """
        values = {}
        for name, key in BROKER_KEYS.items():
            text = self.originals.get(name)
            values[name] = key.default if text is None else key.parse(text)
        for name, text in self.originals.items():
            base = base_name(name)
            if base != name and base in LISTENER_KEYS:
                BROKER_KEYS[base]._replace(name=name).parse(text)
        return values

    def _fill_in(self) -> None:
        """Derive keys that Kafka requires from the others, so that a small file is enough."""
        values = self.values
        if values["node.id"] == REQUIRED:
            if self.role is not None and values["broker.id"] < 0:
                raise ConfigError('Missing required configuration "node.id" which has no default value.')
            values["node.id"] = values["broker.id"]
        if "broker.id" not in self.originals:
            values["broker.id"] = values["node.id"]
        if values["process.roles"] == REQUIRED:
            values["process.roles"] = (self.role or BROKER,)
        if values["controller.listener.names"] == REQUIRED:
            values["controller.listener.names"] = self._controller_names()
        if self._is_controller_only and "listeners" not in self.originals:
            own = parse_voters(values["controller.quorum.voters"]).get(values["node.id"], ("", _CONTROLLER_PORT))
            values["listeners"] = (f"{values['controller.listener.names'][0]}://:{own[1]}",)

    def _controller_names(self) -> tuple[str, ...]:
        if self._is_controller_only and "listeners" in self.originals:
            return tuple(uri.partition(":")[0].upper() for uri in self.values["listeners"])
        return ("CONTROLLER",)

    def _inter_broker_listener_name(self) -> str:
        name = self.values["inter.broker.listener.name"]
        if name is None:
            return str(self.values["security.inter.broker.protocol"])
        if "security.inter.broker.protocol" in self.originals:
            raise ConfigError(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
            )
        return str(name).upper()
