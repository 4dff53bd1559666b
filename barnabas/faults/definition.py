"""The definition of a fault: the requests it matches, its effect, its times. The same for Python, HTTP, YAML, brokers.

    Fault(api="Produce", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER", times=3)
    {"api": "Produce", "topic": "orders", "partition": 1, "error": "NOT_LEADER_OR_FOLLOWER", "times": 3}

are the same fault. `docs/faults.md` is the reference of the tables below. Names follow Apache Kafka's own fault proxy
(KAFKA-21074: injectError, disconnectOn, delayOn, blackholeClient; once, onCall, times, withProbability) and franz-go's
kfake (AddFault).

An invalid definition raises `FaultError`, with one line for the user.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.faults.shapes import can_name
from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.data.releases import RELEASES
from barnabas.protocol.errors import ErrorCode

API_KEYS: Final = {row.name.lower(): int(key) for key, row in ROWS.items()}
MS_MAX: Final = 24 * 3600 * 1000
CONTROLLER: Final = "controller"
#: A fault only hides what a broker has: before 0.11, a release has little that it does not hide.
_PRETENDED: Final = RELEASES[RELEASES.index("0.11") :]
OPERATIONS: Final = ("read", "write", "fsync", "create", "rename", "delete")


class FaultError(ValueError):
    """The reason why a fault is invalid, in one line."""


# The checks of values. Each gets the name of the key, and returns the value in its normal form.


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise FaultError(f"{key} must be a text, not {value!r}")
    return value


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise FaultError(f"{key} must be true or false, not {value!r}")
    return value


def _yes(key: str, value: object) -> bool:
    if value is not True:
        raise FaultError(f"{key} can only be true, not {value!r}")
    return True


def _number(low: int, high: int) -> Callable[[str, object], int]:
    def check(key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FaultError(f"{key} must be a whole number, not {value!r}")
        if not low <= value <= high:
            raise FaultError(f"{key} must be between {low} and {high}, not {value}")
        return value

    return check


def _choice(*choices: str) -> Callable[[str, object], str]:
    def check(key: str, value: object) -> str:
        if value not in choices:
            raise FaultError(f"{key} must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return check


def _share(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise FaultError(f"{key} must be a number between 0 and 1, not {value!r}")
    return float(value)


def _apis(key: str, value: object) -> tuple[str, ...]:
    """Return one or several APIs, given by name or key, as a tuple of names."""
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several:
        raise FaultError(f"{key} must name at least one API")
    return tuple(dict.fromkeys(ROWS[_api_key(one)].name for one in several))


def _api_key(one: object) -> int:
    if isinstance(one, str):
        found = API_KEYS.get(one.lower().replace("_", ""))
        if found is None:
            raise FaultError(f"there is no API {one!r}; names are Kafka's: Produce, Fetch, OffsetCommit, …")
        return found
    if isinstance(one, bool) or not isinstance(one, int) or one not in ROWS:
        raise FaultError(f"there is no API with the key {one!r}")
    return int(one)


def _error(key: str, value: object) -> str:
    name = value.name if isinstance(value, ErrorCode) else str(value).upper()
    if name not in ErrorCode.__members__:
        raise FaultError(f"there is no error {value!r}; names are Kafka's: NOT_LEADER_OR_FOLLOWER, …")
    if ErrorCode[name] == ErrorCode.NONE:
        raise FaultError("NONE is not an error")
    return name


def _os_error(key: str, value: object) -> str:
    if not isinstance(value, str) or getattr(errno, value, None) is None or not value.startswith("E"):
        raise FaultError(f"{key} must be the name of an error of the operating system, such as EIO, not {value!r}")
    return value


def _operations(key: str, value: object) -> tuple[str, ...]:
    several = value if isinstance(value, (list, tuple)) else [value]
    return tuple(dict.fromkeys(_choice(*OPERATIONS)(key, one) for one in several))


def _release(key: str, value: object) -> str:
    text = str(value)
    if text not in _PRETENDED:
        raise FaultError(f"{key} must be a release of Kafka from {_PRETENDED[0]} to {_PRETENDED[-1]}, not {value!r}")
    return text


def _node_or_controller(key: str, value: object) -> int | str:
    return CONTROLLER if value == CONTROLLER else _number(0, 2**31 - 1)(key, value)


_any_ms = _number(0, MS_MAX)
_some_ms = _number(1, MS_MAX)
_id = _number(0, 2**31 - 1)
_count = _number(1, 10**9)

CHECKS: Final[dict[str, Callable[[str, object], Any]]] = {
    # the requests it matches
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
    # its effect
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
    # details of the effect
    "at": _choice("request", "response"),
    "holds_handler": _flag,
    "operations": _operations,
    "path": _text,
    "direction": _choice("both", "to", "from"),
    "mode": _choice("blackhole", "refuse"),
    # its times
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

#: The effects of faults, each with the other keys that it allows. All allow `node`.
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
    """One fault: exactly one of the keys of `ACTIONS`, with the keys that this allows. None means not given.

    Texts that requests are matched with are shell patterns (`orders-*`). Times are in milliseconds. Raises FaultError.
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
    def parse(cls, values: object) -> Fault:
        """Return the fault that values of JSON or YAML define. Raises FaultError."""
        if not isinstance(values, Mapping):
            raise FaultError(f"a fault must be an object with keys and values, not {values!r}")
        known = {}
        for key, value in values.items():
            if key == "once":
                _yes(key, value)
                key, value = "times", 1
            if key not in CHECKS:
                raise FaultError(f"unknown key {key!r}; the keys of a fault are {', '.join(CHECKS)}")
            if value is None:
                raise FaultError(f"{key} has no value")
            known[key] = value
        return cls(**known)

    def items(self) -> list[tuple[str, Any]]:
        """Return the given keys with their values, by the names of JSON."""
        every = [(key, getattr(self, key)) for key in CHECKS]
        return [(key, value) for key, value in every if value is not None]

    def to_json(self) -> dict[str, Any]:
        """Return the fault as JSON values, which `parse` reads."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self.items()}

    @property
    def action(self) -> str:
        """Its effect: a key of ACTIONS."""
        return next(key for key, _ in self.items() if key in ACTIONS)

    @property
    def names_topics(self) -> bool:
        """Whether it matches by topic or partition."""
        return self.topic is not None or self.partition is not None

    def once(self) -> Fault:
        """Return the same fault for one matching request only."""
        return dataclasses.replace(self, times=1)

    def __str__(self) -> str:
        return " ".join(f"{key}={_shown(value)}" for key, value in self.items())


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_whole(given: Mapping[str, Any]) -> None:
    """Check how the given keys go together."""
    actions = [key for key in given if key in ACTIONS]
    if len(actions) != 1:
        found = " and ".join(actions) if actions else "none"
        raise FaultError(f"a fault has exactly one effect, this one has {found}; choose one of {', '.join(ACTIONS)}")
    (action,) = actions
    for key in given:
        if key not in (action, "node", *ACTIONS[action]):
            raise FaultError(f"{key} has no meaning with {action}")
    if "seed" in given and "probability" not in given:
        raise FaultError("seed has no meaning without probability")
    if given.get("holds_handler") and given.get("at") == "response":
        raise FaultError("a handler is held before it handles the request: holds_handler needs at=request")
    _check_reach(given)


def _check_reach(given: Mapping[str, Any]) -> None:
    """Check that the fault can fire at all."""
    names_partition = "partition" in given
    if not (names_partition or "topic" in given) or "api" not in given:
        return
    if not any(can_name(int(API_KEYS[name.lower()]), partition=names_partition) for name in given["api"]):
        what = "partitions" if names_partition else "topics"
        raise FaultError(f"requests of {', '.join(given['api'])} name no {what}: this fault could never fire")


# Under the names of Apache Kafka's fault proxy


def inject_error(api: str | int | ApiKey, error: str | ErrorCode, **match: Any) -> Fault:
    """Return a fault that answers requests of an API with an error (injectError)."""
    return Fault(api=api, error=error, **match)


def disconnect_on(api: str | int | ApiKey, **match: Any) -> Fault:
    """Return a fault that handles requests of an API and closes the connection instead of answering (disconnectOn)."""
    return Fault(api=api, disconnect=True, **match)


def delay_on(api: str | int | ApiKey, delay_ms: int, **match: Any) -> Fault:
    """Return a fault that delays the responses of an API (delayOn)."""
    return Fault(api=api, delay_ms=delay_ms, **match)


def blackhole_client(client_id: str, **match: Any) -> Fault:
    """Return a fault that never answers a client (blackholeClient); `client_id` is a pattern."""
    return Fault(client_id=client_id, blackhole=True, **match)
