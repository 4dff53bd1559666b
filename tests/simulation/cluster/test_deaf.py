"""Brokers that the controllers do not reach, on objects made for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.simulation.cluster.deaf import SLACK_MS, DeafBrokers

NS_PER_MS = 1_000_000
LAG_MS = 4_000
LATE_NS = (LAG_MS + SLACK_MS) * NS_PER_MS


def broker(number: int, offset: int) -> Any:
    """A broker that has applied an offset."""
    link = SimpleNamespace(lifecycle=SimpleNamespace(epoch=5))
    cache = SimpleNamespace(offset=offset)
    return SimpleNamespace(
        name=f"broker-{number}",
        node=SimpleNamespace(node_id=number),
        is_running=True,
        process=SimpleNamespace(is_paused=False),
        server=SimpleNamespace(link=link, services=SimpleNamespace(metadata_cache=cache)),
        applies=lambda offset: setattr(cache, "offset", offset),
    )


class Rig:
    """Two brokers that have applied offset 7, and a controller."""

    def __init__(self) -> None:
        self.brokers = [broker(0, 7), broker(1, 7)]
        self.registered = {number: SimpleNamespace(is_active=True, epoch=5) for number in range(2)}
        self.controller = SimpleNamespace(
            is_active=True,
            controller=SimpleNamespace(sessions=SimpleNamespace(lag_timeout_ms=LAG_MS)),
            process=SimpleNamespace(is_paused=False),
            disk=SimpleNamespace(faults=SimpleNamespace(is_sound=True)),
        )
        image = SimpleNamespace(brokers=self.registered)
        nodes = SimpleNamespace(brokers=self.brokers, controller=self.controller, committed_image=lambda: image)
        self.deaf = DeafBrokers(nodes)
        for number in range(3):
            self.deaf.look((number - 3) * SLACK_MS * NS_PER_MS)

    def wrong(self, now_ns: int) -> list[str]:
        """What a look finds."""
        self.deaf.look(now_ns)
        return self.deaf.problems


def test_a_broker_that_stays_behind() -> None:
    rig = Rig()
    rig.brokers[0].applies(9)
    assert rig.wrong(10) == []
    assert rig.wrong(11) == []
    assert rig.wrong(LATE_NS) == []
    assert rig.wrong(LATE_NS + 100) == ["broker-1 is active, but in 9000 ms it has not applied 9: it knows 7"]


def test_one_that_reaches_one_offset_after_the_other() -> None:
    rig = Rig()
    rig.brokers[0].applies(9)
    rig.wrong(10)
    rig.brokers[0].applies(20)
    rig.brokers[1].applies(9)
    rig.wrong(LATE_NS)
    assert rig.wrong(LATE_NS + 100) == []


def test_one_that_is_fenced() -> None:
    rig = Rig()
    rig.brokers[0].applies(9)
    rig.wrong(10)
    rig.registered[1].is_active = False
    assert rig.wrong(LATE_NS + 100) == []


def test_a_controller_that_is_paused_meanwhile() -> None:
    rig = Rig()
    rig.brokers[0].applies(9)
    rig.wrong(10)
    rig.controller.process.is_paused = True
    rig.wrong(20)
    rig.controller.process.is_paused = False
    assert rig.wrong(LATE_NS + 100) == []


def test_one_that_has_just_come() -> None:
    rig = Rig()
    rig.brokers[1].process = SimpleNamespace(is_paused=False)
    rig.wrong(10)
    rig.brokers[0].applies(9)
    rig.wrong(20)
    assert rig.wrong(LATE_NS + 100) == []
