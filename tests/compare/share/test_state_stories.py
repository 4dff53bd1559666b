"""Barnabas keeps share state as Apache Kafka does: the same answers step by step, and the same records."""

from __future__ import annotations

import pytest

from tests.compare.share.state_stories import CONFIG, FILE, transcript
from tests.support.cluster import BarnabasCluster

#: Our deliberate differences: Kafka's line -> ours, None for none, by story (rules 2 to 4 of `share_state/state.py`).
DIFFERENT: dict[str, dict[str, str | None]] = {
    # A write with a newer state epoch is refused, too. The fence against older leaders outlives Initialize.
    "fences": {
        "write 0 v1 epochs 6/4 start 0 count -1 1-1:2x1 -> 0:NONE": (
            "write 0 v1 epochs 6/4 start 0 count -1 1-1:2x1 -> 0:FENCED_STATE_EPOCH"
        ),
        "read 0 leader 3 -> 0:NONE epoch 5 start 0 0-1:2x1": "read 0 leader 3 -> 0:NONE epoch 5 start 0 0-0:2x1",
        "summary 0 v1 leader 2 -> 0:NONE epochs 6/0 start -1 count -1": (
            "summary 0 v1 leader 2 -> 0:NONE epochs 6/3 start -1 count -1"
        ),
    },
    # A late write moves the start offset not back, and a late Initialize loses nothing.
    "late requests": {
        "read 0 leader 0 -> 0:NONE epoch 1 start 5 5-14:2x1": "read 0 leader 0 -> 0:NONE epoch 1 start 10 10-14:2x1",
        "summary 0 v1 leader -1 -> 0:NONE epochs 1/0 start 5 count 5": (
            "summary 0 v1 leader -1 -> 0:NONE epochs 1/0 start 10 count 4"
        ),
        "read 0 leader 0 -> 0:NONE epoch 1 start -1 none": "read 0 leader 0 -> 0:NONE epoch 1 start 10 10-14:2x1",
    },
    "records": {
        "update fences 0 epochs 0/-/3 start 0 count -1 1-1:2x1": None,
        "snapshot fences 0 epochs 1/5/0 start 20 count 0 none": "snapshot fences 0 epochs 1/5/3 start 20 count 0 none",
        "snapshot fences 0 epochs 2/6/0 start -1 count -1 none": (
            "snapshot fences 0 epochs 2/6/3 start -1 count -1 none"
        ),
        "snapshot late requests 0 epochs 1/1/0 start -1 count -1 none": None,
    },
}
LATE_RECORD = "update late requests 0 epochs 0/-/0 start 5 count 5 5-9:2x1"  # twice: the second one is ours
OUR_LATE_RECORD = "update late requests 0 epochs 0/-/0 start -1 count 4 5-9:2x1"


def expected() -> list[str]:
    """Kafka's lines with our deliberate differences."""
    story, lines = "", []
    for line in FILE.read_text().splitlines():
        story = line[2:] if line.startswith("# ") else story
        ours = DIFFERENT.get(story, {}).get(line, line)
        if ours is not None:
            lines.append(OUR_LATE_RECORD if ours == LATE_RECORD and ours in lines else ours)
    return lines


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The transcript of an unused broker, told to its listener for nodes."""
    with BarnabasCluster(
        tmp_path_factory.mktemp("share-state"), broker_count=1, first_port=0, config=CONFIG
    ) as cluster:
        return transcript(cluster.brokers[0].internal_port).splitlines()


def test_the_transcript_is_kafkas(ours: list[str]) -> None:
    assert ours == expected()


def test_every_difference_is_one() -> None:
    theirs = FILE.read_text().splitlines()
    assert [line for lines in DIFFERENT.values() for line in lines if line not in theirs] == []
    assert theirs.count(LATE_RECORD) == 2
