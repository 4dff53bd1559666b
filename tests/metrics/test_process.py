"""The process' disk account."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics import catalogue as c
from metrics import process
from metrics.exposition import render
from metrics.registry import Registry


def test_fields_are_read(tmp_path: Path) -> None:
    account = tmp_path / "io"
    account.write_text("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\n")
    assert process.disk_bytes("read_bytes", account) == 4096
    assert process.disk_bytes("write_bytes", account) == 8192
    with pytest.raises(KeyError):
        process.disk_bytes("nothing", account)


def test_the_page_has_them() -> None:
    registry = Registry()
    process.register(registry)
    assert {row for row, _ in registry.collect()} == {
        c.LINUX_DISK_READ_BYTES,
        c.LINUX_DISK_WRITE_BYTES,
        c.METRICS_COUNT,
    }
    assert b"kafka_server_kafkaserver_linux_disk_write_bytes " in render(registry)
