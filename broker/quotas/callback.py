"""Client quotas by a class of the operator's own: `client.quota.callback.class=module:Class`.

The class is called with the settings of the process, a mapping of texts. What it makes answers the questions of
`ClientQuotaCallback`, which are those of Kafka's interface. A quota is named by its key, such as `producer_byte_rate`.

Rules
1. Clients whose tags are equal share a rate. There are two tags, `user` and `client-id`; one that is empty or missing
   does not matter. No tags: the client is not limited.
2. Limits are asked for at the first request of a share. They are asked for again after a change of quotas or of the
   cluster, and when `quota_reset_required` says so.
3. A method that fails limits nobody, and is logged, once in `LOG_MS` at most.

Threads: request handlers, and the thread that applies metadata, at the same time. So the methods must be quick.
Source: ClientQuotaCallback, ClientQuotaManager, DynamicTopicClusterQuotaPublisher (Kafka 4.3). Different: there, a tag
can have any name, and a controller shows its callback the cluster too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.broker.quotas.limits import Share
from barnabas.broker.quotas.rates import UNLIMITED
from barnabas.config.errors import ConfigError
from barnabas.security.principal import user as principal_of
from barnabas.security.sasl.callbacks import load_callback
from barnabas.security.values import CLIENT_ID, IP, USER, Limits, QuotaEntity

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config

log = logging.getLogger("barnabas.quotas")

KEY: Final = "client.quota.callback.class"
LOG_MS: Final = 10_000
_NOBODY: Final = Share("", "")

R = TypeVar("R")


class Cluster(NamedTuple):
    """The cluster as a broker knows it."""

    brokers: frozenset[int]  # the ids of those that are alive
    leaders: Mapping[str, Mapping[int, int]]  # by topic: by partition, the id of the leader; -1 if there is none


class ClientQuotaCallback(Protocol):
    """What the operator's class has to answer."""

    def quota_metric_tags(self, quota: str, principal: str, client_id: str) -> Mapping[str, str]:
        """Return whose use a client's counts with (rule 1). The principal has the form `User:alice`."""

    def quota_limit(self, quota: str, tags: Mapping[str, str]) -> float | None:
        """Return the limit of those with these tags; None: they are not limited."""

    def update_quota(self, quota: str, entity: Mapping[str, str | None], limit: float) -> None:
        """Take a limit that was set by Kafka's tools; a name of None stands for the default."""

    def remove_quota(self, quota: str, entity: Mapping[str, str | None]) -> None:
        """Forget such a limit."""

    def quota_reset_required(self, quota: str) -> bool:
        """Return whether limits may have changed since the last call. Asked at each request."""

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Take a changed cluster; return whether limits have changed. Brokers call it, the controller does not."""

    def close(self) -> None:
        """End."""


class CallbackTable:
    """Asks the callback where a `QuotaTable` looks limits up; of one quota."""

    __slots__ = ("_plugin", "key", "on_reset")

    def __init__(self, plugin: QuotaPlugin, key: str) -> None:
        self._plugin = plugin  # fixed before start
        self.key = key  # fixed before start
        self.on_reset: Callable[[], None] = _nothing  # fixed before start; asks for the limits again

    def share_of(self, user: str, client_id: str) -> Share:
        """Return whose use a client's counts with."""
        callback, key = self._plugin.callback, self.key
        if self._plugin.ask(lambda: callback.quota_reset_required(key), False):
            self.on_reset()
        return self._plugin.ask(lambda: _share(callback.quota_metric_tags(key, principal_of(user), client_id)), _NOBODY)

    def limit_of(self, share: Share) -> float:
        """Return the limit of a share; UNLIMITED if there is none."""
        tags = {name: text for name, text in ((USER, share.user), (CLIENT_ID, share.client_id)) if text}
        if not tags:
            return UNLIMITED
        callback, key = self._plugin.callback, self.key
        return self._plugin.ask(lambda: _limit(callback.quota_limit(key, tags)), UNLIMITED)


class QuotaPlugin:
    """The callback of a process, and what it was told."""

    def __init__(self, callback: ClientQuotaCallback, clock: Clock) -> None:
        self.callback = callback  # fixed before start
        self._clock = clock  # fixed before start
        self._known: dict[str, dict[QuotaEntity, float]] = {}  # by quota; owner: the thread that updates this quota
        self._logged_ms: int | None = None  # written by any thread; a race logs twice

    @classmethod
    def of(cls, config: Config, clock: Clock) -> QuotaPlugin | None:
        """Return the plug-in that is configured, None if there is none; raises ConfigError."""
        entry_point = config.client_quota_callback_class
        if not entry_point:
            return None
        make = load_callback(KEY, str(entry_point), is_class=True)
        try:
            made: Any = make(dict(config.originals))
        except Exception as error:
            raise ConfigError(f"{KEY}={entry_point} cannot be made: {type(error).__name__}") from error
        methods = [name for name in vars(ClientQuotaCallback) if not name.startswith("_")]
        missing = [name for name in methods if not callable(getattr(made, name, None))]
        if missing:
            raise ConfigError(f"{KEY}={entry_point} has no {', '.join(missing)}")
        return cls(made, clock)

    def table(self, key: str) -> CallbackTable:
        """Return what asks about one quota."""
        return CallbackTable(self, key)

    def take(self, quotas: Mapping[QuotaEntity, Limits], keys: Iterable[str]) -> None:
        """Pass on what has changed of some quotas; for one key, one thread at a time."""
        callback = self.callback
        for key in keys:
            before = self._known.get(key, {})
            after = {
                entity: limits[key]
                for entity, limits in quotas.items()
                if key in limits and IP not in entity.as_mapping()
            }
            self._known[key] = after
            for entity in [entity for entity in before if entity not in after]:
                self.ask(lambda key=key, entity=entity: callback.remove_quota(key, entity.as_mapping()), None)  # type: ignore[misc]
            for entity, limit in after.items():
                if before.get(entity) != limit:
                    self.ask(
                        lambda key=key, entity=entity, limit=limit: callback.update_quota(  # type: ignore[misc]
                            key, entity.as_mapping(), limit
                        ),
                        None,
                    )

    def take_cluster(self, cluster: Cluster) -> bool:
        """Pass on a changed cluster; return whether limits have changed."""
        return self.ask(lambda: bool(self.callback.update_cluster_metadata(cluster)), False)

    def close(self) -> None:
        """End the callback."""
        self.ask(self.callback.close, None)

    def ask(self, question: Callable[[], R], otherwise: R) -> R:
        """Return the answer to a question; `otherwise` if it fails (rule 3)."""
        try:
            return question()
        except Exception:
            now_ms = self._clock.monotonic_ms()
            if self._logged_ms is None or now_ms - self._logged_ms >= LOG_MS:
                self._logged_ms = now_ms
                log.exception("%s failed", KEY)
            return otherwise


def _share(tags: Mapping[str, str]) -> Share:
    return Share(str(tags.get(USER) or ""), str(tags.get(CLIENT_ID) or ""))


def _limit(limit: float | None) -> float:
    return UNLIMITED if limit is None else float(limit)


def _nothing() -> None:
    """Do nothing."""
