"""The settings of share groups: a group's own, the broker's, and changes."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.broker.share.partition.values import Limits
from barnabas.broker.share.settings import KNOWN_MAX
from barnabas.broker.storage.log.log_types import FetchIsolation
from tests.broker.apis.config_rig import set_configs
from tests.support.broker.broker_rig import BrokerRig


def test_the_settings_of_a_group_override_those_of_the_broker() -> None:
    rig = BrokerRig(group_share_delivery_count_limit="3")
    settings = rig.share_partitions.settings
    assert settings.of("g") == (Limits(30_000, 3, 2_000, True), FetchIsolation.HIGH_WATERMARK, "latest")
    set_configs(
        rig.services,
        ResourceType.GROUP,
        "g",
        share_delivery_count_limit="4",
        share_record_lock_duration_ms="20000",
        share_partition_max_record_locks="500",
        share_renew_acknowledge_enable="false",
        share_isolation_level="read_committed",
        share_auto_offset_reset="earliest",
    )
    assert settings.of("g") == (Limits(20_000, 4, 500, False), FetchIsolation.TXN_COMMITTED, "earliest")
    assert settings.of("h").limits.delivery_count == 3


def test_what_is_known_is_bounded() -> None:
    settings = BrokerRig().share_partitions.settings
    for number in range(KNOWN_MAX + 5):
        settings.of(f"g{number}")
    assert len(settings._known) == 5


def test_settings_that_cannot_be_used_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    rig = BrokerRig()
    set_configs(rig.services, ResourceType.GROUP, "g", share_delivery_count_limit="-7")
    for _ in range(3):
        assert rig.share_partitions.settings.of("g").limits == Limits()
    assert len(caplog.records) == 1
