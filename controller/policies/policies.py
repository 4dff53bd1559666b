"""Policies: classes of the operator's own that may refuse new topics and changes of configs.

`create.topic.policy.class.name=module:Class` and `alter.config.policy.class.name=module:Class` name them. A class is
called with the settings of the process, a mapping of texts. What it makes has the methods of `Policy`.

Rules
1. A policy is asked last: what it sees is valid otherwise. It is asked with `validate_only` too.
2. It refuses by the text that it returns, which the client gets with POLICY_VIOLATION.
3. A policy that fails refuses (UNKNOWN_SERVER_ERROR), and is logged. Why: it is there to protect.
4. Only a change that changes something is asked for. What AlterConfigs removes by not naming it is not shown, as in
   Kafka (KAFKA-14195).

Threads: the event thread, so a policy must be quick, and must not wait for anything.
Source: CreateTopicPolicy, AlterConfigPolicy, ReplicationControlManager, ConfigurationControlManager (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.config.errors import ConfigError
from barnabas.protocol.errors import ApiError, ErrorCode, message_that_fits
from barnabas.security.sasl.callbacks import load_callback

if TYPE_CHECKING:
    from barnabas.config.config import Config

log = logging.getLogger("barnabas.controller")

CREATE_KEY: Final = "create.topic.policy.class.name"
ALTER_KEY: Final = "alter.config.policy.class.name"

T_contra = TypeVar("T_contra", contravariant=True)


class NewTopic(NamedTuple):
    """A topic that a client asks for: with partitions and a replication factor, or with the replicas of each."""

    name: str
    num_partitions: int | None
    replication_factor: int | None
    replicas_assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class ConfigChange(NamedTuple):
    """Configs of one resource that a client changes; a value of None removes one."""

    resource_type: int  # Kafka's numbers: 2 a topic, 4 a broker or "" for all, 16 client metrics, 32 a group
    resource_name: str
    configs: Mapping[str, str | None]


class Policy(Protocol[T_contra]):
    """What the operator's class has to answer, about a `NewTopic` or a `ConfigChange`."""

    def violation(self, asked: T_contra) -> str | None:
        """Return why it is refused; None if it is not."""

    def close(self) -> None:
        """End."""


class Policies:
    """The policies of a controller."""

    def __init__(self, new_topics: Policy[NewTopic] | None = None, changes: Policy[ConfigChange] | None = None) -> None:
        self._new_topics = new_topics  # fixed before start
        self._changes = changes  # fixed before start

    @classmethod
    def of(cls, config: Config) -> Policies:
        """Return what is configured; raises ConfigError."""
        return cls(
            _loaded(CREATE_KEY, config.create_topic_policy_class_name, config),
            _loaded(ALTER_KEY, config.alter_config_policy_class_name, config),
        )

    def check_topic(self, topic: NewTopic) -> None:
        """Raise ApiError if the topic must not be created."""
        _check(CREATE_KEY, self._new_topics, topic)

    def check_change(self, change: ConfigChange) -> None:
        """Raise ApiError if the configs must not be changed."""
        _check(ALTER_KEY, self._changes, change)

    def close(self) -> None:
        """End the policies."""
        for key, policy in ((CREATE_KEY, self._new_topics), (ALTER_KEY, self._changes)):
            if policy is not None:
                try:
                    policy.close()
                except Exception:
                    log.exception("%s: close failed", key)


def _loaded(key: str, entry_point: str | None, config: Config) -> Any:
    if not entry_point:
        return None
    make = load_callback(key, str(entry_point), is_class=True)
    try:
        made = make(dict(config.originals))
    except Exception as error:
        raise ConfigError(f"{key}={entry_point} cannot be made: {type(error).__name__}") from error
    missing = [name for name in ("violation", "close") if not callable(getattr(made, name, None))]
    if missing:
        raise ConfigError(f"{key}={entry_point} has no {', '.join(missing)}")
    return made


def _check(key: str, policy: Policy[T_contra] | None, asked: T_contra) -> None:
    if policy is None:
        return
    try:
        found = policy.violation(asked)
        text = None if found is None else str(found)
    except Exception:  # rule 3
        log.exception("%s failed", key)
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{key} failed.") from None
    if text is not None:
        raise ApiError(ErrorCode.POLICY_VIOLATION, message_that_fits(text))
