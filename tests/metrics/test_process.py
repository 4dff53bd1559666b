"""The numbers of the operating system and the interpreter about the process."""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.process_collector import ProcessCollector

from barnabas.common.locks import factory
from barnabas.metrics import process
from barnabas.metrics.page.exposition import render
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue as c

#: A process with a confusing name: 2.5 s of CPU, started 100 s after the machine, 1000 resident pages.
STAT = "7 (a) R 9) (b) S 1 7 7 0 -1 4194304 90 0 0 0 {utime} {stime} 0 0 20 0 9 0 {start} 123456789 1000 999\n"


def test_fields_are_read(tmp_path: Path) -> None:
    account = tmp_path / "io"
    account.write_text("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\n")
    assert process.disk_bytes("read_bytes", account) == 4096
    assert process.disk_bytes("write_bytes", account) == 8192
    with pytest.raises(KeyError):
        process.disk_bytes("nothing", account)


def test_usage_is_read(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "self" / "fd").mkdir(parents=True)
    for number in range(3):
        (tmp_path / "self" / "fd" / str(number)).touch()
    (tmp_path / "stat").write_text("cpu  1 2 3\nbtime 1700000000\nprocesses 5\n")
    told = STAT.format(utime=2 * ticks, stime=ticks // 2, start=100 * ticks)
    (tmp_path / "self" / "stat").write_text(told)
    assert process.usage(process.boot_time_s(tmp_path), tmp_path) == process.Usage(
        virtual_bytes=123456789,
        resident_bytes=1000 * resource.getpagesize(),
        start_time_s=1700000100.0,
        cpu_s=2.5,
        open_fds=3,
        max_fds=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def test_a_system_without_proc(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        process.boot_time_s(tmp_path)
    (tmp_path / "stat").write_text("cpu  1 2 3\n")
    with pytest.raises(OSError, match="btime"):
        process.boot_time_s(tmp_path)


def test_the_page_shows_the_numbers() -> None:
    registry = Registry()
    process.register(registry)
    assert {row for row, _ in registry.collect()} == {
        c.LINUX_DISK_READ_BYTES,
        c.LINUX_DISK_WRITE_BYTES,
        c.METRICS_COUNT,
    }
    page = samples(render(registry).decode())
    assert page["kafka_server_kafkaserver_linux_disk_write_bytes"] >= 0
    assert page["python_info"] == 1
    assert page["python_gc_collections_total"] <= gc.get_stats()[2]["collections"]


def test_contended_locks_are_shown_if_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "_tally", None)
    registry = Registry()
    process.register(registry)
    assert "barnabas_lock" not in render(registry).decode()
    factory.count_locks()
    lock = factory.new_lock("log")
    with lock:
        pass
    registry = Registry()
    process.register(registry)
    lines = render(registry).decode().splitlines()
    assert 'barnabas_lock_taken_total{lock="log"} 1.0' in lines
    assert 'barnabas_lock_contended_total{lock="log"} 0.0' in lines
    assert 'barnabas_lock_waited_seconds_total{lock="log"} 0.0' in lines


def test_numbers_agree_with_prometheus_client() -> None:
    registry = Registry()
    process.register(registry)
    ours = samples(render(registry).decode())
    collector = ProcessCollector(registry=CollectorRegistry())
    theirs = {sample.name: sample.value for family in collector.collect() for sample in family.samples}
    assert theirs.keys() == {name for name in ours if name.startswith("process_")}
    for name in ("process_start_time_seconds", "process_max_fds"):
        assert ours[name] == pytest.approx(theirs[name], abs=0.02)
    for name in ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds"):
        assert ours[name] == pytest.approx(theirs[name], rel=0.25)
    assert 0 < ours["process_cpu_seconds_total"] <= theirs["process_cpu_seconds_total"] + 1e-6  # theirs is rounded


def samples(page: str) -> dict[str, float]:
    """Return values by name; of several series the last one."""
    return {sample.name: sample.value for family in text_string_to_metric_families(page) for sample in family.samples}
