"""Barnabas delivers to share groups as Apache Kafka does: the same answers step by step."""

from __future__ import annotations

from pathlib import Path

from tests.compare.share.delivery_stories import CONFIG, FILE, transcript
from tests.support.cluster import BarnabasCluster

#: Our deliberate differences: Kafka's line -> ours, by story.
DIFFERENT: dict[str, dict[str, str]] = {
    # Kafka fails with a NullPointerException when a topic of a session is unknown.
    "an unknown topic": {
        "m fetches epoch 0 unknown topic -> UNKNOWN_SERVER_ERROR": (
            "m fetches epoch 0 unknown topic -> NONE | 0:UNKNOWN_TOPIC_ID nothing"
        ),
        "n fetches partitions [0] unknown topic -> UNKNOWN_SERVER_ERROR": (
            "n fetches partitions [0] unknown topic -> NONE | 0:UNKNOWN_TOPIC_ID nothing"
        ),
    },
    # Aborted records do not hold up the start offset, and the acknowledgement of what is before it is no error.
    "committed records only": {
        "m acknowledges 7-10:1 -> NONE 0:INVALID_RECORD_STATE": "m acknowledges 7-10:1 -> NONE 0:NONE",
    },
    # Kafka delivers a record that was deleted, since it is in a batch with one that was not.
    "records are deleted": {
        "n fetches until there are records -> NONE | 0:NONE 4-7x1 in 4-5 6-7": (
            "n fetches until there are records -> NONE | 0:NONE 5-7x1 in 4-5 6-7"
        ),
    },
}


def expected() -> list[str]:
    """Kafka's lines with our deliberate differences."""
    story, lines = "", []
    for line in FILE.read_text().splitlines():
        story = line[2:] if line.startswith("# ") else story
        lines.append(DIFFERENT.get(story, {}).get(line, line))
    return lines


def test_the_transcript_is_kafkas(tmp_path: Path) -> None:
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=CONFIG) as cluster:
        assert transcript(cluster.brokers[0].internal_port).splitlines() == expected()


def test_every_difference_is_one() -> None:
    theirs = FILE.read_text().splitlines()
    assert [line for lines in DIFFERENT.values() for line in lines if line not in theirs] == []
