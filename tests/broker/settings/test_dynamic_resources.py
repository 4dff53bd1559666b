"""DynamicResources: thread pools and connection limits follow the config."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.dynamic_config import DynamicConfig, ResourceType
from barnabas.broker.settings.dynamic_resources import THREAD_COUNTS, DynamicResources
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.config import Config, ConfigError
from barnabas.protocol.metadata_records import ConfigRecord

SETTINGS = {"node.id": "1", "controller.quorum.bootstrap.servers": "h:1", "num.io.threads": "8"}


class Sockets:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.seen: list[dict[str, str]] = []

    def reconfigure(self) -> None:
        self.seen.append({name: text for name, text in self.config.current.items() if name not in SETTINGS})


class ResourcesRig:
    def __init__(self) -> None:
        self.dynamic = DynamicConfig(Config.from_properties(SETTINGS, "broker"))
        self.scheduler = ManualScheduler(FakeClock())
        self.sizes: list[tuple[str, int]] = []
        self.sockets = Sockets(self.dynamic.config)
        pools = {
            "num.io.threads": lambda count: self.sizes.append(("handlers", count)),
            "num.replica.fetchers": lambda count: self.sizes.append(("fetchers", count)),
        }
        DynamicResources(self.dynamic, self.scheduler, pools, self.sockets)

    def set(self, name: str, value: str | None, broker: str = "") -> None:
        """What the controller pushes, and what the scheduler then does."""
        record = ConfigRecord(resource_type=ResourceType.BROKER, resource_name=broker, name=name, value=value)
        self.dynamic.apply_records([record], is_full=False)
        self.scheduler.run_due()


@pytest.fixture
def rig() -> ResourcesRig:
    return ResourcesRig()


def test_pools_are_resized_once_for_a_change(rig: ResourcesRig) -> None:
    rig.set("num.io.threads", "12")
    rig.set("num.replica.fetchers", "2", broker="1")
    rig.set("num.io.threads", "12", broker="1")
    rig.set("num.io.threads", None)
    rig.set("num.io.threads", None, broker="1")
    assert rig.sizes == [("handlers", 12), ("fetchers", 2), ("handlers", 8)]


def test_the_socket_server_is_called_once_the_config_is_in_force(rig: ResourcesRig) -> None:
    rig.set("listener.name.plaintext.max.connections", "7")
    rig.set("max.connections", "9", broker="1")
    rig.set("listener.name.plaintext.num.network.threads", "many", broker="1")
    both = {"listener.name.plaintext.max.connections": "7", "max.connections": "9"}
    assert rig.sockets.seen[-2:] == [both, both], "what cannot be read has no effect, nor do the others lose theirs"
    assert rig.dynamic.config.max_connections == 9


def test_the_config_of_another_broker_changes_nothing(rig: ResourcesRig) -> None:
    rig.set("num.io.threads", "12", broker="2")
    assert rig.sizes == []


@pytest.mark.parametrize("name", THREAD_COUNTS)
def test_a_pool_may_at_most_double_or_halve(rig: ResourcesRig, name: str) -> None:
    count = rig.dynamic.config.value(name)
    rig.dynamic.check_broker_change("", {name: str(count * 2)})
    rig.dynamic.check_broker_change("1", {name: str(max(1, count // 2))})
    with pytest.raises(ConfigError, match=f"for {name}=.*, value should not be greater than double the current value"):
        rig.dynamic.check_broker_change("1", {name: str(count * 2 + 1)})
    if count >= 4:
        with pytest.raises(ConfigError, match="value should be at least half the current value"):
            rig.dynamic.check_broker_change("", {name: str(count // 2 - 1)})
    with pytest.raises(ConfigError, match="Value must be at least 1"):
        rig.dynamic.check_broker_change("", {name: "0"})


def test_keys_of_listeners(rig: ResourcesRig) -> None:
    rig.dynamic.check_broker_change("", {"listener.name.plaintext.max.connections": "5"})
    with pytest.raises(ConfigError, match="Invalid value many"):
        rig.dynamic.check_broker_change("1", {"listener.name.plaintext.max.connections": "many"})
    with pytest.raises(ConfigError, match="broker id must be specified"):
        rig.dynamic.check_broker_change("", {"listener.name.plaintext.max.connections.per.ip": "5"})


@pytest.mark.parametrize("name", ["listeners", "log.dirs", "node.id", "metric.reporters"])
def test_what_cannot_be_applied_is_refused(rig: ResourcesRig, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"Cannot update these configs dynamically: \[{name}\]"):
        rig.dynamic.check_broker_change("1", {name: "1"})
