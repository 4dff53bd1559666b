"""The settings of share groups that their share partitions heed.

Threads: any. A change of settings drops the cached values, so a request sees it soon, not at once.
Source: Kafka's ShareGroupConfigProvider (4.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.broker.share.partition.values import Limits
from barnabas.broker.storage.log.log_types import FetchIsolation
from barnabas.config.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.broker.settings.dynamic_config import DynamicConfig, Resource

log = logging.getLogger("barnabas.share")

#: Why a bound: requests name groups that need not exist.
KNOWN_MAX: Final = 4096


class GroupSettings(NamedTuple):
    """The settings of one group."""

    limits: Limits
    isolation: FetchIsolation
    offset_reset: str


class ShareSettings:
    """See the module."""

    def __init__(self, dynamic_config: DynamicConfig) -> None:
        self._dynamic_config = dynamic_config  # fixed before start
        self._known: dict[str, GroupSettings] = {}  # replaced whole by changes; entries are set by any thread
        dynamic_config.on_change(self._changed)

    def of(self, group_id: str) -> GroupSettings:
        """Return the settings of a group."""
        known = self._known
        found = known.get(group_id)
        if found is None:
            if len(known) >= KNOWN_MAX:
                self._known = known = {}
            found = known[group_id] = self._read(group_id)
        return found

    def _read(self, group_id: str) -> GroupSettings:
        try:
            config = self._dynamic_config.effective_group_config(group_id)
        except ConfigError as error:
            log.error("settings of share group %r cannot be used, the defaults hold: %s", group_id, error)
            config = self._dynamic_config.config.group_config()
        limits = Limits(
            lock_duration_ms=config.share_record_lock_duration_ms,
            delivery_count=config.share_delivery_count_limit,
            in_flight=config.share_partition_max_record_locks,
            can_renew=config.share_renew_acknowledge_enable,
        )
        is_committed = config.share_isolation_level == "read_committed"
        isolation = FetchIsolation.TXN_COMMITTED if is_committed else FetchIsolation.HIGH_WATERMARK
        return GroupSettings(limits, isolation, config.share_auto_offset_reset)

    def _changed(self, resource: Resource) -> None:
        if resource.type in (ResourceType.GROUP, ResourceType.BROKER):
            self._known = {}
