"""The parts of a process with fault injection.

Tests kit.py and engine.py of broker/faults.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.faults.kit import FaultKit
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.config import Config
from barnabas.config.errors import ConfigError
from barnabas.faults.definition import Fault
from tests.support.broker.broker_rig import DATA


def config(**settings: str) -> Config:
    properties = {
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "c:1",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": DATA,
        "barnabas.metrics.port": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return Config.from_properties(properties, "broker")


def test_a_process_without_faults_does_not_load_them() -> None:
    servers = "barnabas.broker.main, barnabas.controller.main"
    script = f"import sys, {servers}; print([name for name in sys.modules if 'faults' in name])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"


def test_a_process_with_faults_needs_a_page() -> None:
    with pytest.raises(ConfigError, match=r"barnabas\.faults\.enable needs barnabas\.metrics\.port"):
        FaultKit(config(barnabas_metrics_port="-1"))


def test_every_row_goes_through_the_faults_and_is_otherwise_equal() -> None:
    kit = FaultKit(config(), MemoryFileSystem())
    wrapped = kit.wrap(TABLE)
    assert wrapped.keys() == TABLE.keys()
    for key, row in TABLE.items():
        assert wrapped[key].handle is not row.handle
        assert (wrapped[key].name, wrapped[key].versions) == (row.name, row.versions)
    kit.close()


def test_requests_may_be_recorded_from_the_start() -> None:
    kit = FaultKit(config(barnabas_faults_recorder_capacity="7"), MemoryFileSystem())
    assert (kit.engine.recorder.is_on, kit.engine.recorder.capacity) == (True, 7)
    assert not FaultKit(config(), MemoryFileSystem()).engine.recorder.is_on


def test_closing_a_process_removes_its_faults() -> None:
    kit = FaultKit(config(), MemoryFileSystem())
    armed = kit.engine.add(Fault(disk_full=True))
    kit.close()
    assert armed.removed.is_set()
    assert kit.engine.faults() == []
