"""The broker's part of AlterConfigs and IncrementalAlterConfigs, before a request is forwarded to the controller.

A broker decides what only it can know: changes of its own config and of its loggers, and contradictory requests. The
rest goes to the controller, which decides, writes and pushes.

Rules
1. A resource that is named twice fails both times, and is not forwarded.
2. Logger levels change at once. They are not stored, so a restart resets them (KIP-412).

Threads: handlers.
Source: ConfigAdminManager, RuntimeLoggerManager (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from barnabas.broker.settings.dynamic_config import ALL_BROKERS, DynamicConfig, ResourceType
from barnabas.common import logs
from barnabas.config import lists
from barnabas.config.errors import ConfigError
from barnabas.config.table.keys import BROKER_KEYS, Type
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k33_alter_configs as legacy_wire
from barnabas.protocol.messages import k44_incremental_alter_configs as wire

log = logging.getLogger("barnabas.config")

#: Returns whether the client may change loggers.
MayAlter = Callable[[], bool]

N = TypeVar("N", legacy_wire.AlterConfigsResource, wire.AlterConfigsResource)

ROOT_LOGGER = "root"
_FORWARDED = (ResourceType.TOPIC, ResourceType.CLIENT_METRICS, ResourceType.GROUP)


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Outcome(NamedTuple):
    """The outcome of one resource."""

    code: ErrorCode
    message: str | None = None


OK = Outcome(ErrorCode.NONE)


def preprocess(
    dynamic: DynamicConfig, resources: Sequence[N], check: Callable[[DynamicConfig, N], Outcome | None]
) -> list[Outcome | None]:
    """Return for each resource its outcome, or None if the controller decides it.

    `check` checks one resource; an ApiError that it raises becomes the outcome.
    """
    keys = [(resource.resource_type, resource.resource_name) for resource in resources]
    counts = Counter(keys)
    outcomes: list[Outcome | None] = []
    for key, resource in zip(keys, resources, strict=True):
        try:
            if counts[key] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            names = [config.name for config in resource.configs]
            if len(set(names)) != len(names):
                raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            outcomes.append(check(dynamic, resource))
        except ApiError as error:
            if dynamic.refusals.admits(logging.INFO, f"config changes refused with {error.code.name}"):
                log.info("refused a config change of %s %s: %s", *key, error.message or error.code.name)
            outcomes.append(Outcome(error.code, error.message or error.code.message))
    return outcomes


def check_nulls(names: Iterable[str]) -> None:
    """Raise ApiError if there are names of configs without a value."""
    nulls = list(names)
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def check_legacy(dynamic: DynamicConfig, resource: legacy_wire.AlterConfigsResource) -> Outcome | None:
    """Check a resource of AlterConfigs, whose configs replace all present ones."""
    check_nulls(config.name for config in resource.configs if config.value is None)
    if resource.resource_type == ResourceType.BROKER:
        _check_broker(dynamic, resource.resource_name, {c.name: c.value or "" for c in resource.configs})
    elif resource.resource_type not in _FORWARDED:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    return None


def check_incremental(
    dynamic: DynamicConfig, resource: wire.AlterConfigsResource, *, validate_only: bool, may_alter_loggers: MayAlter
) -> Outcome | None:
    """Check a resource of IncrementalAlterConfigs; logger levels change at once unless `validate_only`."""
    check_nulls(
        config.name
        for config in resource.configs
        if config.config_operation != Operation.DELETE and config.value is None
    )
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        if not may_alter_loggers():
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        change_loggers(dynamic.broker_id, resource, validate_only)
        return OK
    if resource.resource_type == ResourceType.BROKER:
        current = dynamic.usable_overrides(resource.resource_name)
        _check_broker(dynamic, resource.resource_name, _next_broker_texts(current, resource.configs))
    elif resource.resource_type not in _FORWARDED:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    return None


def _check_broker(dynamic: DynamicConfig, name: str, wanted: dict[str, str]) -> None:
    if name != ALL_BROKERS:
        check_is_this_broker(dynamic.broker_id, name)
    try:
        dynamic.check_broker_change(name, wanted)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None


def check_is_this_broker(own_id: int, name: str) -> None:
    """Raise ApiError unless `name` is the id of this node."""
    try:
        broker_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if broker_id != own_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own_id}, but received {name}",
        )


def _next_broker_texts(current: dict[str, str], changes: Sequence[wire.AlterableConfig]) -> dict[str, str]:
    """Return the configs that a broker resource would have after the changes."""
    for change in changes:
        name, operation = change.name, change.config_operation
        if operation == Operation.SET:
            current[name] = change.value or ""
        elif operation == Operation.DELETE:
            current.pop(name, None)
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            current[name] = _next_list(current, name, Operation(operation), change.value or "")
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    return current


def _next_list(current: dict[str, str], name: str, operation: Operation, value: str) -> str:
    key = BROKER_KEYS.get(name)
    if key is None or key.type is not Type.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Config value {operation.name.lower()} is not allowed for config key: {name}",
        )
    text = current.get(name, key.to_text(key.default)) or ""
    return lists.appended(text, value) if operation is Operation.APPEND else lists.subtracted(text, value)


def change_loggers(own_id: int, resource: wire.AlterConfigsResource, validate_only: bool) -> None:
    """Change levels of this node's loggers, unless `validate_only`. Raises ApiError."""
    check_is_this_broker(own_id, resource.resource_name)
    known = set(logs.logger_names())
    for change in resource.configs:
        _check_logger_change(change, known)
    if validate_only:
        return
    for change in resource.configs:
        level = None if change.config_operation == Operation.DELETE else change.value
        log.info("level of logger %s: %s", change.name, level or "its parent's")
        logs.set_level(change.name, level)


def _check_logger_change(change: wire.AlterableConfig, known: set[str]) -> None:
    if change.config_operation in (Operation.APPEND, Operation.SUBTRACT):
        name = Operation(change.config_operation).name
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{name} operation is not allowed for the BROKER_LOGGER resource",
        )
    if change.config_operation not in (Operation.SET, Operation.DELETE):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown operation type {change.config_operation} is not allowed for the BROKER_LOGGER resource",
        )
    if change.name not in known:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.config_operation == Operation.DELETE and change.name == ROOT_LOGGER:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT_LOGGER} logger is not allowed")
    if change.config_operation == Operation.SET and change.value not in logs.LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(logs.LEVELS)}",
        )
