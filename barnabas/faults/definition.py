"""What a fault is: whom it meets, what it does, when it fires. One vocabulary for Python, HTTP, YAML and the broker.

    Fault(api="Produce", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER", times=3)
    {"api": "Produce", "topic": "orders", "partition": 1, "error": "NOT_LEADER_OR_FOLLOWER", "times": 3}

are the same fault. `docs/faults.md` is the reference; the tables below are what it tells of. Names follow Apache
Kafka's own fault proxy (KAFKA-21074: injectError, disconnectOn, delayOn, blackholeClient; once, onCall, times,
withProbability) and franz-go's kfake (AddFault).

A definition that makes no sense is a `FaultError`, one line for a person.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.faults.shapes import can_name
from barnabas.faults.versions import RELEASES
from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.errors import ErrorCode

API_KEYS: Final = {row.name.lower(): int(key) for key, row in ROWS.items()}
MS_MAX: Final = 24 * 3600 * 1000
CONTROLLER: Final = "controller"
OPERATIONS: Final = ("read", "write", "fsync", "create", "rename", "delete")
FULL_DISK_OPERATIONS: Final = ("write", "create")


class FaultError(ValueError):
    """Why a fault cannot be: one line."""


# How a value is checked, by the name of its key. Each returns the value as it is kept.


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise FaultError(f"{key} must be a text, not {value!r}")
    return value


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise FaultError(f"{key} must be true or false, not {value!r}")
    return value


def _yes(key: str, value: Any) -> bool:
    if value is not True:
        raise FaultError(f"{key} can only be true, not {value!r}")
    return True


def _number(low: int, high: int) -> Callable[[str, Any], int]:
    def check(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FaultError(f"{key} must be a whole number, not {value!r}")
        if not low <= value <= high:
            raise FaultError(f"{key} must be between {low} and {high}, not {value}")
        return value

    return check


def _choice(*choices: str) -> Callable[[str, Any], str]:
    def check(key: str, value: Any) -> str:
        if value not in choices:
            raise FaultError(f"{key} must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return check


def _share(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise FaultError(f"{key} must be a number between 0 and 1, not {value!r}")
    return float(value)


def _apis(key: str, value: Any) -> tuple[str, ...]:
    """One or several APIs, each by name or key, as a tuple of names."""
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several:
        raise FaultError(f"{key} names no API")
    return tuple(dict.fromkeys(ROWS[_api_key(one)].name for one in several))


def _api_key(one: Any) -> int:
    if isinstance(one, str):
        found = API_KEYS.get(one.lower().replace("_", ""))
        if found is None:
            raise FaultError(f"there is no API {one!r}; they are called as in Kafka: Produce, Fetch, OffsetCommit, …")
        return found
    if isinstance(one, bool) or not isinstance(one, int) or one not in ROWS:
        raise FaultError(f"there is no API with the key {one!r}")
    return int(one)


def _error(key: str, value: Any) -> str:
    name = value.name if isinstance(value, ErrorCode) else str(value).upper()
    if name not in ErrorCode.__members__:
        raise FaultError(f"there is no error {value!r}; they are called as in Kafka: NOT_LEADER_OR_FOLLOWER, …")
    if ErrorCode[name] == ErrorCode.NONE:
        raise FaultError("NONE is no error")
    return name


def _os_error(key: str, value: Any) -> str:
    if not isinstance(value, str) or getattr(errno, value, None) is None or not value.startswith("E"):
        raise FaultError(f"{key} must be the name of an error of the operating system, such as EIO, not {value!r}")
    return value


def _operations(key: str, value: Any) -> tuple[str, ...]:
    several = value if isinstance(value, (list, tuple)) else [value]
    return tuple(dict.fromkeys(_choice(*OPERATIONS)(key, one) for one in several))


def _release(key: str, value: Any) -> str:
    text = str(value)
    if text not in RELEASES:
        raise FaultError(f"{key} must be a release of Kafka from {RELEASES[0]} to {RELEASES[-1]}, not {value!r}")
    return text


def _node_or_controller(key: str, value: Any) -> int | str:
    return CONTROLLER if value == CONTROLLER else _number(0, 2**31 - 1)(key, value)


_any_ms = _number(0, MS_MAX)
_some_ms = _number(1, MS_MAX)
_id = _number(0, 2**31 - 1)
_count = _number(1, 10**9)

CHECKS: Final[dict[str, Callable[[str, Any], Any]]] = {
    # whom it meets
    "api": _apis,
    "node": _id,
    "topic": _text,
    "partition": _id,
    "client_id": _text,
    "connection": _text,
    "listener": _text,
    "principal": _text,
    "group": _text,
    "sender": _choice("clients", "brokers", "any"),
    # what it does
    "error": _error,
    "delay_ms": _some_ms,
    "disconnect": _yes,
    "blackhole": _yes,
    "corrupt": _yes,
    "throttle_ms": _some_ms,
    "api_versions": _release,
    "disk_delay_ms": _some_ms,
    "disk_error": _os_error,
    "disk_full": _yes,
    "cut": _node_or_controller,
    "clock_skew_ms": _number(-10 * 365 * MS_MAX, 10 * 365 * MS_MAX),
    # how
    "at": _choice("request", "response"),
    "holds_handler": _flag,
    "operations": _operations,
    "path": _text,
    "direction": _choice("both", "to", "from"),
    "mode": _choice("blackhole", "refuse"),
    # when
    "times": _count,
    "on_call": _count,
    "probability": _share,
    "seed": _number(-(2**63), 2**63 - 1),
    "after_ms": _any_ms,
    "for_ms": _some_ms,
}

_WHO = ("client_id", "connection", "listener", "principal")
_REQUEST = ("api", "topic", "partition", "group", "sender", *_WHO)
_WINDOW = ("after_ms", "for_ms")
_WHEN = ("times", "on_call", "probability", "seed", *_WINDOW)
_DISK = ("path", "operations", *_WHEN)

#: What a fault does, and the other keys that have a meaning beside it. `node` goes with all.
ACTIONS: Final[dict[str, tuple[str, ...]]] = {
    "error": (*_REQUEST, *_WHEN),
    "delay_ms": (*_REQUEST, "at", "holds_handler", *_WHEN),
    "disconnect": (*_REQUEST, "at", *_WHEN),
    "blackhole": (*_REQUEST, *_WHEN),
    "corrupt": ("topic", "partition", "sender", *_WHO, *_WHEN),
    "throttle_ms": (*_REQUEST, *_WHEN),
    "api_versions": (*_WHO, *_WINDOW),
    "disk_delay_ms": _DISK,
    "disk_error": _DISK,
    "disk_full": ("path", *_WINDOW),
    "cut": ("direction", "mode", *_WINDOW),
    "clock_skew_ms": _WINDOW,
}
DISK_ACTIONS: Final = frozenset({"disk_delay_ms", "disk_error", "disk_full"})
NODE_ACTIONS: Final = frozenset({"cut", "clock_skew_ms"})
WIRE_ACTIONS: Final = frozenset(ACTIONS) - DISK_ACTIONS - NODE_ACTIONS


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: exactly one of the keys of `ACTIONS`, and what goes with it. None: not said.

    Texts that say whom it meets are shell patterns (`orders-*`). Times are in milliseconds. Raises FaultError.
    """

    api: str | int | tuple[str, ...] | list[str] | None = None
    node: int | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    connection: str | None = None
    listener: str | None = None
    principal: str | None = None
    group: str | None = None
    sender: str | None = None

    error: str | ErrorCode | None = None
    delay_ms: int | None = None
    disconnect: bool | None = None
    blackhole: bool | None = None
    corrupt: bool | None = None
    throttle_ms: int | None = None
    api_versions: str | None = None
    disk_delay_ms: int | None = None
    disk_error: str | None = None
    disk_full: bool | None = None
    cut: int | str | None = None
    clock_skew_ms: int | None = None

    at: str | None = None
    holds_handler: bool | None = None
    operations: tuple[str, ...] | list[str] | str | None = None
    path: str | None = None
    direction: str | None = None
    mode: str | None = None

    times: int | None = None
    on_call: int | None = None
    probability: float | None = None
    seed: int | None = None
    after_ms: int | None = None
    for_ms: int | None = None

    def __post_init__(self) -> None:
        for key, value in self.items():
            object.__setattr__(self, key, CHECKS[key](key, value))
        _check_whole(dict(self.items()))

    @classmethod
    def parse(cls, values: Any) -> Fault:
        """Make a fault of what JSON or YAML holds; raises FaultError."""
        if not isinstance(values, Mapping):
            raise FaultError(f"a fault is an object with keys and values, not {values!r}")
        known = {}
        for key, value in values.items():
            if key == "once":
                _yes(key, value)
                key, value = "times", 1
            if key not in CHECKS:
                raise FaultError(f"unknown key {key!r}; a fault has {', '.join(CHECKS)}")
            if value is None:
                raise FaultError(f"{key} has no value")
            known[key] = value
        return cls(**known)

    def items(self) -> list[tuple[str, Any]]:
        """What is said of the fault, by the names of JSON."""
        said = [(key, getattr(self, key)) for key in CHECKS]
        return [(key, value) for key, value in said if value is not None]

    def to_json(self) -> dict[str, Any]:
        """The fault as JSON values; `parse` makes the same fault of them."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self.items()}

    @property
    def action(self) -> str:
        """What it does: a key of ACTIONS."""
        return next(key for key, _ in self.items() if key in ACTIONS)

    @property
    def names_topics(self) -> bool:
        """Whether it meets some topics or partitions only."""
        return self.topic is not None or self.partition is not None

    def once(self) -> Fault:
        """The same fault, for one matching request only."""
        return dataclasses.replace(self, times=1)

    def __str__(self) -> str:
        return " ".join(f"{key}={_shown(value)}" for key, value in self.items())


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_whole(said: Mapping[str, Any]) -> None:
    """What a fault must be besides valid values."""
    actions = [key for key in said if key in ACTIONS]
    if len(actions) != 1:
        told = " and ".join(actions) if actions else "nothing"
        raise FaultError(f"a fault does one thing, this one {told}; choose one of {', '.join(ACTIONS)}")
    (action,) = actions
    for key in said:
        if key not in (action, "node", *ACTIONS[action]):
            raise FaultError(f"{key} has no meaning beside {action}")
    if "seed" in said and "probability" not in said:
        raise FaultError("seed has no meaning without probability")
    if said.get("holds_handler") and said.get("at") == "response":
        raise FaultError("a handler is held before it handles: holds_handler goes with at=request")
    _check_reach(said)


def _check_reach(said: Mapping[str, Any]) -> None:
    """A fault that could never fire is a mistake."""
    names_partition = "partition" in said
    if not (names_partition or "topic" in said) or "api" not in said:
        return
    if not any(can_name(int(API_KEYS[name.lower()]), partition=names_partition) for name in said["api"]):
        what = "partitions" if names_partition else "topics"
        raise FaultError(f"requests of {', '.join(said['api'])} name no {what}: this fault could never fire")


# As Apache Kafka's proxy calls them


def inject_error(api: str | int | ApiKey, error: str | ErrorCode, **match: Any) -> Fault:
    """Answer requests of an API with an error (injectError)."""
    return Fault(api=api, error=error, **match)


def disconnect_on(api: str | int | ApiKey, **match: Any) -> Fault:
    """Carry requests of an API out, and close the connection instead of answering (disconnectOn)."""
    return Fault(api=api, disconnect=True, **match)


def delay_on(api: str | int | ApiKey, delay_ms: int, **match: Any) -> Fault:
    """Hold the answers of an API back (delayOn)."""
    return Fault(api=api, delay_ms=delay_ms, **match)


def blackhole_client(client_id: str, **match: Any) -> Fault:
    """Never answer a client (blackholeClient); `client_id` is a pattern."""
    return Fault(client_id=client_id, blackhole=True, **match)
