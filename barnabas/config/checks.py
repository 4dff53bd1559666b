"""Checks of settings against each other, once each is valid by itself.

Source: Kafka 4.3, KafkaConfig.validateValues; messages as Kafka words them.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any, Final

from barnabas.config.effect import check_protection
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import (
    PLAINTEXT,
    check_listeners,
    limit_of_host,
    parse_addresses,
    parse_voters,
)
from barnabas.config.types import Password

#: The values of replica.selector.class: Kafka's own classes, recognized by name.
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

#: The only value of authorizer.class.name: Kafka's own class, recognized by name.
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

_ASSIGNOR_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor"
#: The entries that group.consumer.assignors may list, and the name that members request.
ASSIGNOR_NAMES: Final = {
    "uniform": "uniform",
    "range": "range",
    f"{_ASSIGNOR_PACKAGE}.UniformAssignor": "uniform",
    f"{_ASSIGNOR_PACKAGE}.RangeAssignor": "range",
}
#: The entries that group.share.assignors may have.
SHARE_ASSIGNORS: Final = ("simple", f"{_ASSIGNOR_PACKAGE}.SimpleAssignor")

#: The entry of cordoned.log.dirs that stands for every log directory.
ALL_DIRECTORIES: Final = "*"

_PAGE_TLS: Final = "barnabas.pages.ssl."
_MIB: Final = 1 << 20
_HOST_CHARACTERS: Final = frozenset(f"{string.ascii_letters}{string.digits}-%._:")  # of Kafka's Utils.validHostPattern
_CODEC_MAX: Final = 4  # zstd


def check(state: Mapping[str, Any], originals: Mapping[str, str]) -> None:
    """Raise ConfigError for settings that contradict each other; `state` holds the attributes of a Config."""
    _check_log(state)
    _check_coordinators(state)
    _check_network(state)
    _check_listeners(state)
    _check_pages(*(state[f"barnabas_pages_{name}"] for name in ("auth_token", "auth_users", "change_token")))
    has_page_keys = state["barnabas_pages_ssl_keystore_location"] or state["barnabas_pages_ssl_keystore_key"]
    page_tls = sorted(name for name, text in originals.items() if name.startswith(_PAGE_TLS) and text.strip())
    _require(
        bool(has_page_keys or not page_tls),
        f"{', '.join(page_tls)}: pages have TLS only with {_PAGE_TLS}keystore.location or {_PAGE_TLS}keystore.key",
    )
    selector = state["replica_selector_class"]
    _require(
        selector in (None, "", LEADER_SELECTOR, RACK_AWARE_SELECTOR),
        f"replica.selector.class={selector} is not supported: it can be {RACK_AWARE_SELECTOR} or {LEADER_SELECTOR}",
    )
    if state["node_id"] != state["broker_id"]:
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
    if state["role"] is not None:
        check_protection(originals, _check_protocols(state))
        _check_authorizer(state["authorizer_class_name"], state["super_users"])
        _check_role(state, originals)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _check_authorizer(class_name: str, super_users: str) -> None:
    _require(
        class_name in ("", STANDARD_AUTHORIZER),
        f"Class {class_name} could not be found: authorizer.class.name can be {STANDARD_AUTHORIZER}",
    )
    names = [name for part in super_users.split(";") if (name := part.strip())]
    _require(not names or bool(class_name), "super.users has no effect without authorizer.class.name")
    for name in names:
        _require(":" in name, f"super.users: expected a string in format principalType:principalName but got {name}")


def _check_log(state: Mapping[str, Any]) -> None:
    _require(state["log_roll_ms"] >= 1, "log.roll.ms must be greater than or equal to 1")
    _require(state["log_roll_jitter_ms"] >= 0, "log.roll.jitter.ms must be greater than or equal to 0")
    _require(
        state["log_retention_ms"] >= 1 or state["log_retention_ms"] == -1,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    )
    _require(
        state["log_flush_interval_ms"] >= 0,
        f"Invalid value {state['log_flush_interval_ms']} for configuration flush.ms: Value must be at least 0",
    )
    _require(
        state["log_cleaner_dedupe_buffer_size"] // max(state["log_cleaner_threads"], 1) > _MIB,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )
    _require(
        state["replica_fetch_wait_max_ms"] <= state["replica_socket_timeout_ms"],
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary "
        "socket timeouts",
    )
    _require(
        state["replica_fetch_wait_max_ms"] <= state["replica_lag_time_max_ms"],
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent "
        "frequent changes in ISR",
    )
    _check_cordoned(state["cordoned_log_dirs"], state["log_dirs"])
    low, high = state["log_cleaner_min_compaction_lag_ms"], state["log_cleaner_max_compaction_lag_ms"]
    _require(
        low <= high,
        f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})",
    )
    _require(
        not state["remote_log_storage_system_enable"],
        "remote.log.storage.system.enable: tiered storage is not supported",
    )


def _check_cordoned(cordoned: tuple[str, ...], log_dirs: tuple[str, ...]) -> None:
    if ALL_DIRECTORIES in cordoned:
        _require(len(cordoned) == 1, "When cordoned.log.dirs is set to *, it must not contain other values")
        return
    missing = [path for path in cordoned if path not in log_dirs]
    _require(
        not missing,
        "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
        f"{','.join(missing)}",
    )


def _check_coordinators(state: Mapping[str, Any]) -> None:
    for codec in (state["offsets_topic_compression_codec"], state["share_coordinator_state_topic_compression_codec"]):
        _require(0 <= codec <= _CODEC_MAX, f"Unknown compression type id: {codec}")
    _require(
        "classic" in state["group_coordinator_rebalance_protocols"],
        "Disabling the 'classic' protocol is not supported.",
    )
    assignors = state["group_consumer_assignors"]
    _require(bool(assignors), "group.consumer.assignors must not be empty")
    for name in assignors:
        _require(
            name in ASSIGNOR_NAMES, f"group.consumer.assignors: {name} is not supported: it can be uniform or range"
        )
    assignors = state["group_share_assignors"]
    _require(
        len(assignors) == 1, f"group.share.assignors must contain exactly one assignor, but found {len(assignors)}"
    )
    _require(
        assignors[0] in SHARE_ASSIGNORS, f"group.share.assignors: {assignors[0]} is not supported: it can be simple"
    )
    for protocol in ("consumer", "share", "streams"):
        _check_groups(state, protocol)
    _check_share_groups(state)
    _require(
        state["group_streams_num_standby_replicas"] <= state["group_streams_max_standby_replicas"],
        "group.streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
    )


def _check_groups(state: Mapping[str, Any], protocol: str) -> None:
    """Check that values are within the bounds for groups, and a session is longer than a heartbeat interval."""
    prefix = f"group.{protocol}"
    for what in ("heartbeat.interval", "session.timeout", "assignment.interval"):
        unit = what.replace(".", "_")
        value, low, high = (state[f"group_{protocol}_{bound}{unit}_ms"] for bound in ("", "min_", "max_"))
        name = f"{prefix}.{what}.ms"
        _require(low <= high, f"{prefix}.max.{what}.ms must be greater than or equal to {prefix}.min.{what}.ms")
        _require(low <= value, f"{name} must be greater than or equal to {prefix}.min.{what}.ms")
        _require(value <= high, f"{name} must be less than or equal to {prefix}.max.{what}.ms")
    _require(
        state[f"group_{protocol}_heartbeat_interval_ms"] < state[f"group_{protocol}_session_timeout_ms"],
        f"{prefix}.heartbeat.interval.ms must be less than {prefix}.session.timeout.ms",
    )


def _check_share_groups(state: Mapping[str, Any]) -> None:
    for what in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        unit = what.replace(".", "_")
        value, low, high = (state[f"group_share_{bound}{unit}"] for bound in ("", "min_", "max_"))
        name, lowest, highest = (f"group.share.{bound}{what}" for bound in ("", "min.", "max."))
        _require(high >= value, f"{highest} must be greater than or equal to {name}")
        _require(value >= low, f"{name} must be greater than or equal to {lowest}")
    _require(
        state["group_share_max_share_sessions"] >= state["group_share_max_size"],
        "group.share.max.share.sessions must be greater than or equal to group.share.max.size",
    )


def _check_network(state: Mapping[str, Any]) -> None:
    delay_ms, idle_ms = state["connection_failed_authentication_delay_ms"], state["connections_max_idle_ms"]
    _require(
        idle_ms < 0 or delay_ms < idle_ms,
        f"connection.failed.authentication.delay.ms={delay_ms} should always be less than "
        f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out",
    )
    queued = state["queued_max_request_bytes"]
    _require(
        queued <= 0 or queued >= state["socket_request_max_bytes"],
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    )
    overrides = state["max_connections_per_ip_overrides"]
    # Why rstrip: Java's split drops empty items at the end, and Kafka refuses the others.
    for item in map(str.strip, overrides.rstrip(", ").split(",") if overrides.strip(", ") else ()):
        host, limit = limit_of_host(item)
        _require(
            bool(host) and limit.isdecimal(),
            f"Invalid value {item} for configuration max.connections.per.ip.overrides: expected host:count",
        )
        _require(
            _HOST_CHARACTERS.issuperset(host),
            f"max.connections.per.ip.overrides contains invalid addresses : {host}",
        )
    _require(
        state["max_connections_per_ip"] > 0 or bool(overrides),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    )


def _check_pages(token: Password | None, users: Password | None, change_token: Password | None) -> None:
    """Refuse credentials that no request could carry, and empty ones, which would leave the pages open."""
    if token is users is change_token is None:
        return
    from barnabas.common.pages.page_access import CHANGE_KEY, credentials_of  # Why here: most have no credentials

    texts = ["" if value is None else value.value for value in (token, users, change_token)]
    try:
        found = credentials_of(*texts)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    _require(
        bool(found.readers) or token is users is None,
        "barnabas.pages.auth.token and .users are empty: remove them if the pages are to be open",
    )
    _require(
        change_token is None or bool(change_token.value),
        f"{CHANGE_KEY} is empty: remove it if nothing is to be changed",
    )


def _check_protocols(state: Mapping[str, Any]) -> frozenset[str]:
    """Return the protocols of this process's listeners, and of those that it connects to."""
    protocols = state["listener_protocols"]
    for name in state["controller_listener_names"]:
        _require(
            name.upper() in protocols,
            f"Controller listener with name {name} defined in controller.listener.names not found in "
            "listener.security.protocol.map  (an explicit security mapping for each controller listener is required if "
            "listener.security.protocol.map is non-empty, or if there are security protocols other than PLAINTEXT in "
            "use)",
        )
    used = {listener.security_protocol for listener in state["all_listeners"]}
    for name in (*state["controller_listener_names"], state["inter_broker_listener_name"]):
        protocol = protocols.get(name.upper(), PLAINTEXT)
        used.add(protocol)
    return frozenset(used)


def _check_listeners(state: Mapping[str, Any]) -> None:
    check_listeners("listeners", state["all_listeners"], distinct_ports=True)
    check_listeners("advertised.listeners", state["advertised_listeners_parsed"], distinct_ports=False)
    for listener in state["advertised_listeners_parsed"]:
        _require(
            listener.host != "0.0.0.0",
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
        )


def _check_role(state: Mapping[str, Any], originals: Mapping[str, str]) -> None:
    """Check what the roles of the process demand. `role` is the one whose config this is."""
    role, roles = state["role"], set(state["process_roles"])
    if role not in roles:
        shown = ",".join(state["process_roles"])
        raise ConfigError(f"process.roles={shown}, but this process is started as a {role}; set process.roles={role}")
    _require(state["node_id"] >= 0, "Invalid value -1 for configuration node.id: Value must be at least 0")
    names = {listener.name for listener in state["all_listeners"]}
    controllers = {name.upper() for name in state["controller_listener_names"]}
    voters = parse_voters(state["controller_quorum_voters"])
    parse_addresses("controller.quorum.bootstrap.servers", state["controller_quorum_bootstrap_servers"])
    has_quorum = bool(voters or state["controller_quorum_bootstrap_servers"])
    if roles == {"controller"}:
        _require(
            names <= controllers,
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller",
        )
        _check_brokers_listener(state, controllers)
    elif roles == {"broker"}:
        _check_broker_only(state, has_quorum, names & controllers, voters)
    else:
        _require(
            has_quorum,
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers.",
        )
    for name in state["early_start_listeners"] or ():
        _require(
            name in names,
            f"early.start.listeners contains listener {name}, but this is not contained in listeners or "
            "controller.listener.names",
        )
    if "controller" in roles:
        _check_controller(state, names, controllers, voters)
    if role == "broker":
        _check_broker(state, names - controllers)
        _check_release(state["barnabas_compat_release"], names - controllers, state["inter_broker_listener_name"])


def _check_release(release: str, names: set[str], between_brokers: str) -> None:
    _require(
        not release or bool(names - {between_brokers}),
        f"barnabas.compat.release={release} needs a listener for clients beside {between_brokers}: brokers, which use "
        "that one among themselves (inter.broker.listener.name), know the newest versions only",
    )


def _check_brokers_listener(state: Mapping[str, Any], controllers: set[str]) -> None:
    """Check the name of the brokers' listener in the file of a controller, which has no such listener."""
    name = state["values"]["inter.broker.listener.name"]
    if name is None:
        return
    _require(bool(name), "The provided listener name is null or empty string")
    _require(
        name.upper() in state["listener_protocols"],
        f"Listener with name {name} defined in inter.broker.listener.name not found in listener.security.protocol.map.",
    )
    _require(
        name.upper() not in controllers,
        "controller.listener.names must not contain an explicitly set inter.broker.listener.name configuration value "
        "when process.roles=controller",
    )


def _check_controller(
    state: Mapping[str, Any], names: set[str], controllers: set[str], voters: Mapping[int, object]
) -> None:
    _require(
        controllers <= names,
        "controller.listener.names must only contain values appearing in the 'listeners' configuration when running "
        "the KRaft controller role",
    )
    _require(
        not voters or state["node_id"] in voters,
        f"If process.roles contains the 'controller' role, the node id {state['node_id']} must be included in the set "
        f"of voters controller.quorum.voters={sorted(voters)}",
    )


def _check_broker_only(
    state: Mapping[str, Any], has_quorum: bool, own_controllers: set[str], voters: Mapping[int, object]
) -> None:
    _require(
        has_quorum,
        "controller.quorum.bootstrap.servers must name the controller (host:port), or controller.quorum.voters "
        "(id@host:port)",
    )
    _require(
        state["node_id"] not in voters,
        f"If process.roles contains just the 'broker' role, the node id {state['node_id']} must not be included in the "
        f"set of voters controller.quorum.voters={sorted(voters)}",
    )
    _require(
        not state["controller_quorum_auto_join_enable"],
        "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.",
    )
    _require(
        not own_controllers,
        "controller.listener.names must not contain a value appearing in the 'listeners' configuration when running "
        "KRaft with just the broker role",
    )


def _check_broker(state: Mapping[str, Any], names: set[str]) -> None:
    """Check the listeners for clients and brokers; `names` are theirs."""
    advertised = {listener.name for listener in state["advertised_listeners_parsed"]}
    _require(
        bool(advertised),
        "There must be at least one broker advertised listener. Perhaps all listeners appear in "
        "controller.listener.names?",
    )
    _require(
        state["inter_broker_listener_name"] in advertised,
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based "
        f"on currently configured listeners are {','.join(sorted(advertised))}",
    )
    _require(
        advertised <= names,
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
        f"{','.join(sorted(advertised))}. The valid options based on the current configuration are "
        f"{','.join(sorted(names))}",
    )
