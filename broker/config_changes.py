"""What AlterConfigs and IncrementalAlterConfigs do on a broker before the controller is asked.

A broker answers for what only it can know: changes of its own config and of its loggers, and requests that contradict
themselves. The rest goes on to the controller, which decides, writes and pushes.

Rules
1. A resource named twice fails, both times; nothing of it is forwarded.
2. Levels of loggers change here and now; they are not written anywhere, and the next start forgets them (KIP-412).

Threads: handlers.
Source: ConfigAdminManager, RuntimeLoggerManager (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.dynamic_config import ALL_BROKERS, DynamicConfig, ResourceType
from barnabas.common import logs
from barnabas.config import lists
from barnabas.config.errors import ConfigError
from barnabas.config.keys import BROKER_KEYS, Type
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services

log = logging.getLogger("barnabas.config")

ROOT_LOGGER = "root"
_FORWARDED = (ResourceType.TOPIC, ResourceType.CLIENT_METRICS, ResourceType.GROUP)


class Operation(IntEnum):
    """What is to be done with a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Outcome(NamedTuple):
    """What became of a resource."""

    code: ErrorCode
    message: str | None = None


OK = Outcome(ErrorCode.NONE)


def preprocess(
    services: Services, resources: Sequence[Any], check: Callable[[Services, Any], Outcome | None]
) -> list[Outcome | None]:
    """Return, for each resource, its outcome if it needs no controller, else None.

    `check` looks at one resource; an ApiError it raises is the outcome.
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
            outcomes.append(check(services, resource))
        except ApiError as error:
            log.info("refused a config change of %s %s: %s", *key, error.message or error.code.name)
            outcomes.append(Outcome(error.code, error.message or error.code.message))
    return outcomes


def check_nulls(names: Iterable[str]) -> None:
    """Raise for settings that have no value."""
    nulls = list(names)
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def check_legacy(services: Services, resource: Any) -> Outcome | None:
    """Look at a resource of AlterConfigs, whose settings replace all it has."""
    check_nulls(config.name for config in resource.configs if config.value is None)
    if resource.resource_type == ResourceType.BROKER:
        _check_broker(services, resource.resource_name, {c.name: c.value for c in resource.configs})
    elif resource.resource_type not in _FORWARDED:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    return None


def check_incremental(services: Services, resource: Any, *, validate_only: bool) -> Outcome | None:
    """Look at a resource of IncrementalAlterConfigs; change levels of loggers unless `validate_only`."""
    check_nulls(
        config.name
        for config in resource.configs
        if config.config_operation != Operation.DELETE and config.value is None
    )
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        _change_loggers(services, resource, validate_only)
        return OK
    if resource.resource_type == ResourceType.BROKER:
        dynamic: DynamicConfig = services.dynamic_config
        current = dict(dynamic.overrides(ResourceType.BROKER, resource.resource_name))
        _check_broker(services, resource.resource_name, _next_broker_texts(current, resource.configs))
    elif resource.resource_type not in _FORWARDED:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    return None


def _check_broker(services: Services, name: str, wanted: dict[str, str]) -> None:
    if name != ALL_BROKERS:
        check_is_this_broker(services, name)
    try:
        services.dynamic_config.check_broker_change(name, wanted)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None


def check_is_this_broker(services: Services, name: str) -> None:
    """Raise unless `name` is the id of this broker."""
    try:
        broker_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if broker_id != services.broker_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.broker_id}, but received {name}",
        )


def _next_broker_texts(current: dict[str, str], changes: Sequence[Any]) -> dict[str, str]:
    """Return the settings that a broker resource would have after the changes."""
    for change in changes:
        name, operation = change.name, change.config_operation
        if operation == Operation.SET:
            current[name] = change.value
        elif operation == Operation.DELETE:
            current.pop(name, None)
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            current[name] = _next_list(current, name, Operation(operation), change.value)
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


def _change_loggers(services: Services, resource: Any, validate_only: bool) -> None:
    check_is_this_broker(services, resource.resource_name)
    known = set(logs.logger_names())
    for change in resource.configs:
        _check_logger_change(change, known)
    if validate_only:
        return
    for change in resource.configs:
        level = None if change.config_operation == Operation.DELETE else change.value
        log.info("level of logger %s: %s", change.name, level or "its parent's")
        logs.set_level(change.name, level)


def _check_logger_change(change: Any, known: set[str]) -> None:
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
    if change.config_operation == Operation.SET and change.value.upper() not in logs.LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(logs.LEVELS)}",
        )
