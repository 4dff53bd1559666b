"""kafka-consumer-groups and kafka-groups from the 4.3.1 jars, with all their operations on classic groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.cluster import Target
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

RECORDS = 10  # in each partition
PARTITIONS = 2
FIRST_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z, then one record a second
TIMEOUT_S = 20
Row = dict[str, str]


class Groups:
    """Runs kafka-consumer-groups and reads its tables."""

    def __init__(self, tools: KafkaTools, target: Target) -> None:
        self._tools = tools
        self._where = ("--bootstrap-server", target.bootstrap)

    def run(self, *arguments: str, tool: str = "kafka-consumer-groups") -> str:
        """Run the tool and return its output. Raises AssertionError if it fails."""
        return self._tools.run(tool, *self._where, *arguments).check().stdout

    def output(self, *arguments: str) -> str:
        """Run the tool, which may fail, and return its standard output and error."""
        result = self._tools.run("kafka-consumer-groups", *self._where, *arguments)
        return result.stdout + result.stderr

    def table(self, *arguments: str, tool: str = "kafka-consumer-groups") -> list[Row]:
        """Return the rows of the tool's table, by its headings."""
        lines = [line for line in self.run(*arguments, tool=tool).splitlines() if line.strip()]
        start = next(index for index, line in enumerate(lines) if line.startswith(("GROUP", "TOPIC")))
        titles = lines[start].split()
        return [dict(zip(titles, line.split(), strict=False)) for line in lines[start + 1 :]]

    def offsets(self, group: str) -> dict[int, int]:
        """Return a group's committed offsets, by partition."""
        rows = self.table("--describe", "--group", group)
        return {int(row["PARTITION"]): int(row["CURRENT-OFFSET"]) for row in rows}


@pytest.fixture
def groups(tools: KafkaTools, target: Target) -> Groups:
    """The tools on the cluster under test."""
    return Groups(tools, target)


@pytest.fixture
def topic(target: Target, create_topic: Callable[..., str]) -> str:
    """A topic with ten records in each of two partitions, a second apart."""
    name = create_topic(partitions=PARTITIONS, retention_ms="-1")  # the records are old
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(name, str(number), partition=partition, timestamp=FIRST_MS + 1000 * number)
    assert producer.flush(TIMEOUT_S) == 0
    return name


@pytest.fixture
def member(target: Target, topic: str) -> Iterator[Consumer]:
    """The only member of a group with the topic's name; it has committed 5 and 7."""
    config = {
        "bootstrap.servers": target.bootstrap, "group.id": topic, "client.id": "reader", "enable.auto.commit": False,
    }  # fmt: skip
    consumer = Consumer(config)
    consumer.subscribe([topic])
    eventually("it has joined", lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == PARTITIONS)
    consumer.commit(offsets=[TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 7)], asynchronous=False)
    yield consumer
    consumer.close()


@pytest.fixture
def empty(member: Consumer, topic: str) -> str:
    """The same group without its member."""
    member.close()
    return topic


class TestDescribe:
    def test_offsets(self, groups: Groups, member: Consumer, topic: str) -> None:
        rows = groups.table("--describe", "--group", topic)
        columns = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "HOST", "CLIENT-ID")
        assert [[row[name] for name in columns] for row in rows] == [
            [topic, topic, "0", "5", "10", "5", "/127.0.0.1", "reader"],
            [topic, topic, "1", "7", "10", "3", "/127.0.0.1", "reader"],
        ]

    def test_state(self, groups: Groups, member: Consumer, topic: str) -> None:
        described = groups.run("--describe", "--group", topic, "--state")
        assert re.search(rf"{topic} .*\(0\) +range +Stable +1", described), described

    def test_members(self, groups: Groups, member: Consumer, topic: str) -> None:
        (row,) = groups.table("--describe", "--group", topic, "--members")
        assert (row["CLIENT-ID"], row["#PARTITIONS"]) == ("reader", "2")
        verbose = groups.run("--describe", "--group", topic, "--members", "--verbose")
        assert f"{topic}:0,1" in verbose

    def test_an_empty_group(self, groups: Groups, empty: str) -> None:
        assert groups.offsets(empty) == {0: 5, 1: 7}
        assert re.search(rf"{empty} .*Empty +0", groups.run("--describe", "--group", empty, "--state"))
        assert f"Consumer group '{empty}' has no active members." in groups.output("--describe", "--group", empty)

    def test_no_group(self, groups: Groups, unused_name: str) -> None:
        assert f"Group {unused_name} not found." in groups.output("--describe", "--group", unused_name)

    def test_all_groups(self, groups: Groups, member: Consumer, topic: str) -> None:
        assert topic in groups.run("--describe", "--all-groups", "--state")

    def test_list(self, groups: Groups, member: Consumer, topic: str) -> None:
        assert topic in groups.run("--list").split()
        rows = {row["GROUP"]: row["STATE"] for row in groups.table("--list", "--state")}
        assert rows[topic] == "Stable"
        assert topic in groups.run("--list", "--state", "stable").split()
        assert topic not in groups.run("--list", "--state", "empty").split()
        types = {row["GROUP"]: row["TYPE"] for row in groups.table("--list", "--type")}
        assert types[topic] == "Classic"


# Reset option -> the offsets of partitions 0 and 1 afterwards. Before, they are 5 and 7; the log end offsets are 10.
RESETS: dict[str, tuple[tuple[str, ...], tuple[int, int]]] = {
    "to earliest": (("--to-earliest",), (0, 0)),
    "to latest": (("--to-latest",), (10, 10)),
    "to an offset": (("--to-offset", "4"), (4, 4)),
    "to an offset beyond the end": (("--to-offset", "99"), (10, 10)),
    "by a shift": (("--shift-by", "2"), (7, 9)),
    "by a shift back": (("--shift-by", "-6"), (0, 1)),
    "to a time": (("--to-datetime", "2023-11-14T22:13:23.000"), (3, 3)),
    "to a time between records": (("--to-datetime", "2023-11-14T22:13:23.500"), (4, 4)),
    "by a duration": (("--by-duration", "PT1S"), (10, 10)),
    "to current": (("--to-current",), (5, 7)),
}


class TestReset:
    @pytest.mark.parametrize("what", RESETS)
    def test_modes(self, groups: Groups, empty: str, what: str) -> None:
        how, after = RESETS[what]
        dry = groups.table("--group", empty, "--reset-offsets", "--topic", empty, *how, "--dry-run")
        assert tuple(int(row["NEW-OFFSET"]) for row in sorted(dry, key=lambda row: row["PARTITION"])) == after
        assert groups.offsets(empty) == {0: 5, 1: 7}
        groups.run("--group", empty, "--reset-offsets", "--topic", empty, *how, "--execute")
        assert groups.offsets(empty) == dict(enumerate(after))

    def test_one_partition(self, groups: Groups, empty: str) -> None:
        groups.run("--group", empty, "--reset-offsets", "--topic", f"{empty}:1", "--to-offset", "2", "--execute")
        assert groups.offsets(empty) == {0: 5, 1: 2}

    def test_all_topics(self, groups: Groups, empty: str) -> None:
        groups.run("--group", empty, "--reset-offsets", "--all-topics", "--to-earliest", "--execute")
        assert groups.offsets(empty) == {0: 0, 1: 0}

    def test_from_a_file_that_it_exported(self, groups: Groups, empty: str, tmp_path: Path) -> None:
        plan = groups.run("--group", empty, "--reset-offsets", "--topic", empty, "--shift-by", "1", "--export")
        assert sorted(plan.split()) == [f'"{empty}",0,6', f'"{empty}",1,8']
        (tmp_path / "plan.csv").write_text(plan)
        groups.run("--group", empty, "--reset-offsets", "--from-file", str(tmp_path / "plan.csv"), "--execute")
        assert groups.offsets(empty) == {0: 6, 1: 8}

    def test_a_group_that_does_not_exist_yet(self, groups: Groups, topic: str, unused_name: str) -> None:
        group = f"{unused_name}-new"
        groups.run("--group", group, "--reset-offsets", "--topic", topic, "--to-offset", "3", "--execute")
        assert groups.offsets(group) == {0: 3, 1: 3}

    def test_a_group_with_members_is_rejected(self, groups: Groups, member: Consumer, topic: str) -> None:
        output = groups.output("--group", topic, "--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
        assert "can only be reset if the group" in output
        assert groups.offsets(topic) == {0: 5, 1: 7}


class TestDelete:
    def test_offsets(self, groups: Groups, empty: str) -> None:
        groups.run("--group", empty, "--delete-offsets", "--topic", f"{empty}:0")
        assert groups.offsets(empty) == {1: 7}

    def test_offsets_of_a_subscribed_topic(self, groups: Groups, member: Consumer, topic: str) -> None:
        output = groups.output("--group", topic, "--delete-offsets", "--topic", topic)
        assert "actively subscribed to it" in output
        assert groups.offsets(topic) == {0: 5, 1: 7}

    def test_a_group(self, groups: Groups, empty: str) -> None:
        assert f"Deletion of requested consumer groups ('{empty}') was successful." in groups.run(
            "--group", empty, "--delete"
        )
        assert empty not in groups.run("--list").split()

    def test_a_group_with_members(self, groups: Groups, member: Consumer, topic: str) -> None:
        assert "The group is not empty" in groups.output("--group", topic, "--delete")
        assert topic in groups.run("--list").split()

    def test_no_group(self, groups: Groups, unused_name: str) -> None:
        assert "The group id does not exist." in groups.output("--group", unused_name, "--delete")


def test_kafka_groups_lists_by_type_and_protocol(groups: Groups, member: Consumer, topic: str) -> None:
    simple = f"{topic}-simple"
    groups.run("--group", simple, "--reset-offsets", "--topic", topic, "--to-earliest", "--execute")

    def listed(*filters: str) -> dict[str, tuple[str, str]]:
        rows = groups.table("--list", *filters, tool="kafka-groups")
        return {row["GROUP"]: (row["TYPE"], row.get("PROTOCOL", "")) for row in rows if row["GROUP"].startswith(topic)}

    everything = {topic: ("Classic", "consumer"), simple: ("Classic", "")}
    assert listed() == everything
    assert listed("--group-type", "classic") == everything
    assert listed("--protocol", "consumer") == {topic: everything[topic]}
    assert set(listed("--consumer")) == {topic, simple}
    assert listed("--group-type", "share") == {}
