"""Quotas of changes of topics (KIP-599): partitions created and deleted a second. The controller enforces them.

Rules
1. Each partition created or deleted takes a token of the client's bucket. A bucket holds the tokens of the whole window
   (`controller.quota.window.*`).
2. Strict, for clients that know the error: an overdrawn bucket refuses a topic with THROTTLING_QUOTA_EXCEEDED; one that
   is not overdrawn accepts it, however many partitions it has.
3. Permissive, for older clients: everything is accepted, and the client waits until its bucket has no debts.
4. The wait is that of the last overdrawn count, less the time since.

Threads: a handler makes a `MutationQuota`; the controller's event thread counts with it.
Source: ControllerMutationQuotaManager (Kafka 4.3).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.broker.quotas.limits import CONTROLLER_MUTATION_RATE, QuotaTable, Share, Table
from barnabas.broker.quotas.managers import Manager
from barnabas.broker.quotas.rates import MS_PER_S, Window
from barnabas.broker.quotas.sensors import BucketSensor, Sensors
from barnabas.broker.quotas.throttle import UNTHROTTLED, Throttle
from barnabas.common.clock import Clock
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.security.principal import user_name

if TYPE_CHECKING:
    from barnabas.broker.quotas.callback import QuotaPlugin
    from barnabas.broker.requests.request import Request
    from barnabas.config.config import Config
    from barnabas.security.values import Limits, QuotaEntity


class MutationManager(Manager[BucketSensor]):
    """The limit of partitions created and deleted a second."""

    def __init__(self, table: Table, window: Window, clock: Clock) -> None:
        def make(share: Share, now_ms: int) -> BucketSensor:
            return BucketSensor(share, self.table.limit_of(share), window, now_ms)

        super().__init__(table, Sensors(make), clock)

    def count(self, sensor: BucketSensor, permits: float, now_ms: int, *, is_strict: bool) -> Throttle:
        """Take tokens; return the wait that this causes (rules 2 and 3)."""
        ms, left = sensor.record(permits, now_ms, is_strict=is_strict)
        return UNTHROTTLED if ms <= 0 else self._throttle(sensor, ms, left)


class MutationQuota:
    """The quota of one request."""

    __slots__ = ("_clock", "_is_strict", "_manager", "_recorded_ms", "_sensor", "_throttle")

    def __init__(self, manager: MutationManager, sensor: BucketSensor, clock: Clock, *, is_strict: bool) -> None:
        self._manager = manager
        self._sensor = sensor
        self._clock = clock
        self._is_strict = is_strict
        self._throttle = UNTHROTTLED
        self._recorded_ms = 0

    def record(self, permits: int) -> None:
        """Count partitions; raises THROTTLING_QUOTA_EXCEEDED (rule 2)."""
        now_ms = self._clock.monotonic_ms()
        throttle = self._manager.count(self._sensor, permits, now_ms, is_strict=self._is_strict)
        if throttle.ms:
            self._throttle = throttle
            self._recorded_ms = now_ms
            if self._is_strict:
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def throttle(self) -> Throttle:
        """Return the wait that is left (rule 4)."""
        now_ms = self._clock.monotonic_ms()
        left_ms = self._throttle.ms - (now_ms - self._recorded_ms)
        if left_ms <= 0:
            return UNTHROTTLED
        throttle = self._throttle._replace(ms=left_ms)
        self._manager.note(throttle, now_ms)
        return throttle


class MutationQuotas:
    """The quotas of a controller."""

    def __init__(self, window: Window, clock: Clock, plugin: QuotaPlugin | None = None) -> None:
        self._window = window  # fixed before start
        self._plugin = plugin  # fixed before start
        self._clock = clock  # fixed before start
        self._lock = threading.Lock()
        self._quotas: Mapping[QuotaEntity, Limits] | None = None  # guarded by: _lock; what `manager` was made from
        self.manager: MutationManager | None = None  # replaced whole under _lock; None without limits

    @classmethod
    def of(cls, config: Config, clock: Clock, plugin: QuotaPlugin | None = None) -> MutationQuotas:
        """Return the quotas of a process, with no limits yet."""
        sample_ms = config.controller_quota_window_size_seconds * MS_PER_S
        return cls(Window(config.controller_quota_window_num, sample_ms), clock, plugin)

    def update(self, quotas: Mapping[QuotaEntity, Limits]) -> None:
        """Take the limits of all entities, an immutable mapping."""
        if quotas is self._quotas:
            return
        with self._lock:
            self._quotas = quotas
            if self._plugin is not None:
                self._update_plugin(self._plugin, quotas)
                return
            table = QuotaTable(quotas, CONTROLLER_MUTATION_RATE)
            if not table:
                self.manager = None
            elif self.manager is None:
                self.manager = MutationManager(table, self._window, self._clock)
            else:
                self.manager.set_table(table)

    def _update_plugin(self, plugin: QuotaPlugin, quotas: Mapping[QuotaEntity, Limits]) -> None:
        """Let the operator's own class decide; it may limit clients for whom nothing is configured."""
        plugin.take(quotas, (CONTROLLER_MUTATION_RATE,))
        if self.manager is not None:
            self.manager.ask_again()
            return
        table = plugin.table(CONTROLLER_MUTATION_RATE)
        self.manager = MutationManager(table, self._window, self._clock)
        table.on_reset = self.manager.ask_again

    def expire(self) -> None:
        """Drop the buckets of clients that were not seen for an hour; called from time to time."""
        manager = self.manager
        if manager is not None:
            manager.expire(self._clock.monotonic_ms())

    def quota_for(self, request: Request, strict_since: int) -> MutationQuota | None:
        """Return the quota of a request, strict from an API version on; None if there are no limits."""
        manager = self.manager
        if manager is None:
            return None
        now_ms = self._clock.monotonic_ms()
        sensor = manager.sensor(user_name(request.principal), request.client_id or "", now_ms)
        return MutationQuota(manager, sensor, self._clock, is_strict=request.version >= strict_since)
