"""Clients of other libraries: what a broken cluster would show is found, and a life with both of them is well.

Tests `clients/outsider.py`, `clients/with_kafka_python.py` and `clients/with_aiokafka.py`, too.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from tests.simulation.load.clients.fetching import Got
from tests.simulation.load.clients.outsider import Outsider
from tests.simulation.load.foreign import Foreign
from tests.simulation.load.part import Setting
from tests.simulation.load.story import Story

ONLY = dict.fromkeys(
    (
        "producers", "readers", "plain", "silent", "transactional", "copiers", "classic", "consumers", "keyed",
        "trimmed", "meddlers", "deciders", "sharers", "pipelining",
    ),
    0,
)  # fmt: skip


class Rig:
    """A part whose clients did what a test says."""

    def __init__(self) -> None:
        unused: Any = None
        self.copied: list[tuple[int, int]] = []
        setting = Setting(
            Story(partitions=1, kafka_python=1), [("10.0.0.1", 9092)], lambda _: 0,
            lambda tp, offset: self.copied.append((tp.partition, offset)), unused, unused, unused,
            unused,
        )  # fmt: skip
        self.part = Foreign(setting, "library", [(Outsider, 2)])
        self.journal = self.part.journal
        self.producer = self.journal.begin()

    def write(self, offset: int, *, acknowledged: bool = True, kept: bool = True) -> None:
        sent = self.journal.next(0, self.producer)
        if acknowledged:
            self.journal.acknowledged(0, sent, offset)
        if kept:
            self.part._read("last", 0, Got(offset, sent.key, sent.value))

    def deliver(self, *offsets: int) -> None:
        for offset in offsets:
            self.journal.delivered(0, Got(offset, None, b"0 0"))

    def end(self, committed: int) -> list[str]:
        self.part._committed = [committed]
        return list(self.part.check())


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_nothing_is_wrong(rig: Rig) -> None:
    rig.write(0)
    rig.write(1)
    rig.deliver(0, 1)
    rig.journal.committed(0, 2)
    assert rig.end(committed=2) == []
    assert rig.copied == [(0, 0), (0, 1)], "others look where acknowledged records are"
    assert [client.name for client in rig.part.clients] == ["Outsider-0", "Outsider-1"]
    assert rig.part.summary() == "library: 2 records acknowledged, 2 committed"


def test_a_lost_record(rig: Rig) -> None:
    rig.write(0, kept=False)
    (line,) = rig.end(committed=0)
    assert "lost: 1" in line


def test_a_record_that_no_member_got(rig: Rig) -> None:
    rig.write(0)
    rig.write(1)
    rig.deliver(1)
    assert rig.end(committed=2) == ["library-0: committed up to 2, but no member got [0]"]


def test_a_commit_that_is_taken_back(rig: Rig) -> None:
    rig.journal.committed(0, 5)
    assert rig.end(committed=3) == ["library-0: offset 5 was committed, and 3 is in the end"]


def test_members_must_get_what_is_acknowledged_when_the_faults_have_ended(rig: Rig) -> None:
    rig.write(0)
    assert not rig.part.is_settled()
    rig.write(1)  # later: not waited for
    rig.deliver(0)
    assert rig.part.is_settled()


def test_a_life_with_both_libraries_has_the_same_history_twice() -> None:
    story = ",".join(f"{name}={count}" for name, count in {**ONLY, "kafka_python": 1, "aiokafka": 1}.items())
    command = [sys.executable, "-m", "tests.simulation", "--seed", "1", "--no-faults", "--story", f"{story},seconds=5"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    for library in ("kafka-python", "aiokafka"):
        done = re.search(rf"{library}: (\d+) records acknowledged, (\d+) committed", first)
        assert done is not None
        assert int(done[1]) == int(done[2]) > 10
    assert first == second
