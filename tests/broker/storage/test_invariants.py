"""Invariants of logs and their producers: a healthy log has no violation, a broken one is reported."""

from __future__ import annotations

import pytest

from barnabas.broker.storage.invariants import violations
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log.log_types import LogOffsetMetadata
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from tests.broker.storage.test_log_manager import BrokerSettings
from tests.support.broker.storage_bench import TP, Bench, Settings


def written(bench: Bench) -> Log:
    target = bench.open(segment_bytes=300)
    for number in range(10):
        bench.append(target, f"v{number}", producer_id=7, producer_epoch=0, base_sequence=number, is_transactional=True)
    return target


def test_a_healthy_log_has_no_violation(bench: Bench) -> None:
    target = written(bench)
    assert violations([target]) == []
    target.truncate_to(4)
    assert violations([target]) == []
    target.truncate_fully_and_start_at(40)
    assert violations([target]) == []


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [
        ("high_watermark", LogOffsetMetadata(11), 1),
        ("log_start_offset", 12, 1),
        ("recovery_point", 11, 2),
        ("end", LogOffsetMetadata(10, 0, 1), 3),
    ],
)
def test_each_broken_invariant_of_a_log_is_reported(bench: Bench, name: str, value: object, number: int) -> None:
    target = written(bench)
    setattr(target._state, name, value)
    (line,) = violations([target])
    assert line.startswith(f"flights-0: inv. {number}")
    target.mark_offline(OSError("gone"))
    assert violations([target]) == [], "a failed disk may have interrupted an append"


def test_each_broken_invariant_of_producers_is_reported(bench: Bench) -> None:
    target = written(bench)
    state = target.producer_state
    state.map_end_offset = 9
    with pytest.raises(AssertionError, match=r"inv\. 2: 7"):
        target.invariants()
    state.map_end_offset = 10
    state._ongoing.clear()
    with pytest.raises(AssertionError, match=r"inv\. 1: 7"):
        target.invariants()


@pytest.mark.parametrize("checks_invariants", [True, False])
def test_a_running_broker_reports_broken_invariants_if_asked_to(
    checks_invariants: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock, fs = FakeClock(), MemoryFileSystem()
    scheduler = ManualScheduler(clock)
    manager = LogManager(BrokerSettings(), ["/a"], clock, scheduler, fs, checks_invariants=checks_invariants)
    manager.open_directories(1)
    manager.identify("cluster-a")
    manager.load_logs()
    manager.start()
    manager.get_or_create_log(TP, b"\x01" * 16, Settings(), True)._state.recovery_point = 5
    clock.advance_ms(BrokerSettings.log_initial_task_delay_ms)
    scheduler.run_due()
    assert ("An invariant is broken: flights-0: inv. 2" in caplog.text) == checks_invariants
