"""The commands that an operator uses every day, against a real cluster.

They test client.py, cluster_nodes.py, settings.py, text.py; admin/topic.py, admin/group.py, admin/config.py;
records/produce.py, records/consume.py, records/positions.py, records/size_limits.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.cli.client import results
from barnabas.cli.errors import UserError
from tests.barnabas.cli.conftest import Barnabas
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually


def lines(directory: Path, *texts: str) -> str:
    """A file of these lines."""
    path = directory / "lines"
    path.write_text("".join(f"{text}\n" for text in texts))
    return str(path)


# topic


def test_a_topic_is_created_described_altered_and_deleted(barnabas: Barnabas, bootstrap: str) -> None:
    created = barnabas("topic", "create", "life", "--partitions", "2", "--config", "retention.ms=5000")
    assert created == (0, "created life\n", "")
    assert barnabas("topic", "create", "life", "--if-not-exists").out == "life exists already\n"
    again = barnabas("topic", "create", "life")
    assert again.code == 1
    assert again.err.endswith("(TOPIC_ALREADY_EXISTS)\n")
    assert ["life", "2", "1"] in barnabas("topic", "list").rows
    described = json.loads(barnabas("topic", "describe", "life", "--json").out)
    assert [(row["partition"], row["leader"], row["replicas"], row["isr"]) for row in described] == [
        (0, 0, [0], [0]),
        (1, 0, [0], [0]),
    ]
    assert barnabas("topic", "alter", "life", "--partitions", "3").out == "life has 3 partitions\n"
    assert len(barnabas("topic", "describe", "life").rows) == 3
    partly = barnabas("topic", "delete", "life", "nosuch")
    assert partly.code == 1
    assert "nosuch: Unknown topic or partition (UNKNOWN_TOPIC_OR_PART); done: life" in partly.err
    assert "life" not in {row[0] for row in barnabas("topic", "list").rows}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "bad/name"], "bad/name: "),
        (["create", "wide", "--replication-factor", "3"], "(INVALID_REPLICATION_FACTOR)"),
        (["create", "odd", "--config", "foo=1"], "Unknown topic config name: foo (INVALID_CONFIG)"),
        (["describe", "nosuch"], "nosuch: Unknown topic or partition"),
        (["alter", "nosuch", "--partitions", "2"], "nosuch: "),
    ],
)
def test_a_refusal_of_the_cluster_is_one_line(
    barnabas: Barnabas, bootstrap: str, arguments: list[str], words: str
) -> None:
    outcome = barnabas("topic", *arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert words in outcome.err
    assert outcome.err.count("\n") == 1


def test_an_unknown_topic_suggests_the_closest_one(barnabas: Barnabas, topic: str) -> None:
    shown = barnabas("config", "show", "--topic", topic[:-1])
    assert shown.err.endswith(f"(UNKNOWN_TOPIC_OR_PART); did you mean topic {topic}?\n")
    for command in (["topic", "describe"], ["topic", "delete"], ["consume"]):
        outcome = barnabas(*command, topic[:-1])
        assert outcome.code == 1
        assert outcome.err.endswith(f"(UNKNOWN_TOPIC_OR_PART); did you mean {topic}?\n")


# produce and consume


def test_lines_are_produced_and_consumed(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    file = lines(tmp_path, "N1:late", "N2:early", "N1:never")
    options = ["--file", file, "--key-separator", ":", "--header", "source=a=b", "--compression", "zstd"]
    assert barnabas("produce", topic, *options) == (0, "", "3 records acknowledged\n")
    out = barnabas("consume", topic, "--from-beginning", "--until-end", "--json").out
    records = [json.loads(line) for line in out.splitlines()]
    assert sorted((record["key"], record["value"]) for record in records) == [
        ("N1", "late"),
        ("N1", "never"),
        ("N2", "early"),
    ]
    assert all(record["headers"] == [["source", "a=b"]] for record in records)
    assert barnabas("consume", topic, "--until-end").out == ""
    first = next(record for record in records if record["value"] == "never")
    chosen = ["--partition", str(first["partition"]), "--offset", str(first["offset"]), "--max", "1"]
    assert barnabas("consume", topic, *chosen).out == "never\n"
    beyond = barnabas("consume", topic, *chosen[:2], "--offset", "999", "--until-end")
    assert beyond.code == 1
    assert "_AUTO_OFFSET_RESET" in beyond.err


def test_bytes_tombstones_and_headers_are_consumed_as_produced(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\xff\xd8\n")
    to_first = [topic, "-p", "0"]
    assert barnabas("produce", *to_first, "--whole", "-k", "picture", "--file", str(tmp_path / "image")).code == 0
    (tmp_path / "pairs").write_bytes(b"gone=\0kept=x")
    pairs = ["-D", "\\0", "-K", "=", "-Z", "-H", "n=", "--file", str(tmp_path / "pairs")]
    assert barnabas("produce", *to_first, *pairs) == (0, "", "2 records acknowledged\n")
    read = ["consume", *to_first, "--from-beginning", "-e"]
    records = [json.loads(line) for line in barnabas(*read, "--json").out.splitlines()]
    assert [(record["key"], record["value"], record["headers"]) for record in records] == [
        ("picture", {"base64": "/9gK"}, []),
        ("gone", None, [["n", ""]]),
        ("kept", "x", [["n", ""]]),
    ]
    assert {record["timestamp_type"] for record in records} == {"CreateTime"}
    assert barnabas(*read, "-f", "%p %o %k %S %h\\n").out == "0 0 picture 3 \n0 1 gone -1 n=\n0 2 kept 1 n=\n"
    assert barnabas("consume", *to_first, "--last", "2", "-e", "-f", "%k,").out == "gone,kept,"
    assert barnabas("consume", topic, "--last", "9", "-e", "-c", "1", "-f", "%k").out == "picture"


def test_records_of_a_time_range(barnabas: Barnabas, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for second in range(5):
        producer.produce(topic, str(second), partition=second % 2, timestamp=1_700_000_000_000 + 1000 * second)
    producer.flush()
    span = ["consume", topic, "--from", "2023-11-14T22:13:21Z", "--until", "1700000003000", "-f", "%s\\n"]
    assert sorted(barnabas(*span).out.split()) == ["1", "2"]
    assert sorted(barnabas("consume", topic, "--from", "1700000003000", "-e").out.split()) == ["3", "4"]
    assert barnabas("consume", topic, "--from", "1900000000000", "-e").out == ""
    assert barnabas("consume", topic, "--from-beginning", "--until", "0").out == ""


def test_a_record_that_is_too_large_names_the_limit(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(1_500_000))
    whole = ["produce", topic, "--whole", "--file", str(tmp_path / "large")]
    client = barnabas(*whole)
    assert client == (
        1,
        "",
        "barnabas: a record of 1500000 bytes is over the client's limit of 1000000 bytes: raise it with "
        "--max-message-bytes; the 0 records before it were acknowledged\n",
    )
    broker = barnabas(*whole, "--max-message-bytes", "2000000")
    assert broker.code == 1
    assert "the broker's message.max.bytes is 1048588, and the topic has no max.message.bytes of its own" in broker.err
    assert barnabas("config", "set", "--topic", topic, "max.message.bytes=1200000").code == 0
    of_topic = "the topic's max.message.bytes is 1200000 (barnabas config set --topic"
    larger = [*whole, "-X", "message.max.bytes=2000000"]
    eventually("the broker has the change", lambda: of_topic in barnabas(*larger).err)
    assert barnabas("config", "set", "--topic", topic, "max.message.bytes=2000000").code == 0
    eventually("it is accepted", lambda: barnabas(*larger).code == 0)
    assert barnabas("consume", topic, "--from-beginning", "-e", "-f", "%S").out == "1500000"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume", "t", "--from-beginning", "--last", "1"], "give only one of --from-beginning and --last"),
        (["consume", "t", "--group", "g", "--last", "1"], "--group excludes --partition"),
        (["consume", "t", "--json", "-f", "%s"], "give --json or --format, not both"),
        (["consume", "t", "--from", "yesterday"], "'yesterday' is not a time"),
        (["consume", "t", "-X", "no.such.key=1"], "No such configuration property"),
        (["produce", "t", "-X", "acks"], "'acks' is not of the form KEY=VALUE"),
        (["produce", "t", "-k", "a", "-K", ":"], "give --key or --key-separator, not both"),
        (["produce", "t", "-D", ""], "--delimiter is empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_contradictory_options_are_one_line(
    barnabas: Barnabas, bootstrap: str, arguments: list[str], words: str
) -> None:
    outcome = barnabas(*arguments)
    code = 1 if "no.such.key=1" in arguments else 2  # librdkafka refuses its own settings
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, "", 1)
    assert words in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume", "nosuch"], "nosuch: Unknown topic or partition"),
        (["consume", "TOPIC", "--partition", "9"], "has no partition 9"),
        (["produce", "TOPIC", "--file", "LINES", "--partition", "9"], "(_UNKNOWN_PARTITION)"),
        (
            ["produce", "TOPIC", "--file", "LINES", "--key-separator", "|"],
            "a line has no '|': 'x'; the 0 records",
        ),
        (["produce", "TOPIC", "--file", "LINES", "--header", "x"], "--header 'x' is not of the form KEY=VALUE"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_failure_to_produce_or_consume_is_one_line(
    barnabas: Barnabas, topic: str, tmp_path: Path, arguments: list[str], words: str
) -> None:
    values = {"TOPIC": topic, "LINES": lines(tmp_path, "x")}
    outcome = barnabas(*(values.get(argument, argument) for argument in arguments))
    assert (outcome.code, outcome.out) == (2 if "--header" in arguments else 1, "")
    assert words in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_ctrl_c_ends_silently(bootstrap: str, topic: str, command: str, barnabas: Barnabas, tmp_path: Path) -> None:
    barnabas("produce", topic, "--file", lines(tmp_path, "first"), "--partition", "0")
    arguments = [command, topic, *(["--from-beginning"] if command == "consume" else [])]
    program = [sys.executable, "-P", "-m", "barnabas.cli", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        # Why: a shell's background jobs ignore SIGINT, and their children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdin is not None
        if command == "consume":
            assert child.stdout.readline() == b"first\n"
        else:
            child.stdin.write(b"second\n" * 100_000)  # more than pipe and buffer hold: the command has read some of it
            child.stdin.flush()
        child.send_signal(signal.SIGINT)
        assert child.stderr.read().strip() == b""
        assert child.wait() == 130


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a process of its own."""
    program = [sys.executable, "-P", "-m", "barnabas.cli", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as child:
        yield child


def test_sigterm_commits_what_was_printed(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    barnabas("produce", topic, "--file", lines(tmp_path, "a", "b", "c"), "--partition", "1")
    with started("consume", topic, "--group", topic, "--from-beginning") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert [child.stdout.readline() for _ in range(3)] == [b"a\n", b"b\n", b"c\n"]
        child.terminate()
        assert (child.wait(), child.stderr.read()) == (143, b"")
    (row,) = [row for row in barnabas("group", "describe", topic).rows if row[:2] == [topic, "1"]]
    assert row[2] in {"2", "3"}  # the signal may come between printing the last record and marking it
    assert row[5] == "-"  # the member has left


def test_a_closed_pipe_commits_what_was_printed(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    values = [f"{number} {'x' * 1000}" for number in range(300)]  # more than a pipe holds
    barnabas("produce", topic, "--file", lines(tmp_path, *values), "--partition", "1")
    with started("consume", topic, "--group", topic, "--from-beginning") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline().startswith(b"0 ")
        child.stdout.close()
        assert (child.wait(), child.stderr.read()) == (1, b"")
    (row,) = [row for row in barnabas("group", "describe", topic).rows if row[:2] == [topic, "1"]]
    assert 1 <= int(row[2]) < 300


def test_sigterm_flushes_what_was_produced(barnabas: Barnabas, topic: str) -> None:
    with started("produce", topic, "-X", "linger.ms=20000") as child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(b"x\n" * 100_000)  # more than the pipe holds: the command has read some of it
        child.terminate()
        assert (child.wait(), child.stderr.read()) == (143, b"")
    assert barnabas("consume", topic, "--last", "1", "-e").out != ""


def test_a_change_without_an_answer_may_still_be_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.cli.client.TIMEOUT_S", 0)
    never: Future[None] = Future()
    with pytest.raises(UserError, match=r"^t: no answer within 0 s$"):
        results({"t": never})
    with pytest.raises(UserError, match="may still carry the request out"):
        results({"t": never}, is_change=True)


# group


def test_a_group_is_listed_described_reset_and_deleted(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    group = f"group-of-{topic}"
    barnabas("produce", topic, "--file", lines(tmp_path, "a", "b", "c"), "--partition", "1")
    consumed = barnabas("consume", topic, "--group", group, "--from-beginning", "--max", "2")
    assert consumed == (0, "a\nb\n", "")
    assert [group, "EMPTY", "CLASSIC"] in barnabas("group", "list").rows
    described = json.loads(barnabas("group", "describe", group, "--json").out)
    (row,) = [row for row in described if row["partition"] == 1]
    assert (row["committed"], row["end"], row["lag"], row["member"]) == (2, 3, 1, None)
    mistyped = barnabas("group", "describe", group[:-1])
    assert mistyped.err == f"barnabas: there is no group {group[:-1]}; did you mean {group}?\n"
    assert f"; did you mean {group}?" in barnabas("group", "delete", group[:-1]).err
    shown = barnabas("group", "reset-offsets", group, "--topic", topic, "--to-earliest")
    assert shown.rows == [[topic, "0", "0"], [topic, "1", "0"]]
    assert shown.err == "nothing has changed yet: add --execute\n"
    barnabas("group", "reset-offsets", group, "--topic", topic, "--to-offset", "1", "--execute")
    assert barnabas("consume", topic, "--group", group, "--max", "2").out == "b\nc\n"
    contradiction = barnabas("group", "reset-offsets", group, "--topic", topic, "--to-earliest", "--to-latest")
    assert (contradiction.code, contradiction.out) == (2, "")
    assert contradiction.err.startswith("barnabas: give one of --to-earliest, --to-latest")
    both = barnabas("group", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute", "--dry-run")
    assert both.err == "barnabas: give --execute or --dry-run, not both\n"
    unknown = barnabas("group", "reset-offsets", group[:-1], "--topic", topic, "--to-latest")
    assert unknown.err.startswith(
        f"barnabas: warning: there is no group {group[:-1]} yet; did you mean {group}?; --execute creates it\n"
    )
    assert barnabas("group", "delete", group).out == f"deleted {group}\n"
    gone = barnabas("group", "describe", group)
    assert (gone.code, gone.err) == (1, f"barnabas: there is no group {group}\n")
    assert "GROUP_ID_NOT_FOUND" in barnabas("group", "delete", group).err
    assert barnabas("group", "reset-offsets", group, "--topic", "nosuch", "--to-latest").code == 1


# config


#: A new cluster has eligible leader replicas, and so a value for all brokers.
MIN_ISR_OF_ALL = ["min.insync.replicas", "1", "DYNAMIC_DEFAULT_BROKER_CONFIG"]


def test_settings_may_come_from_a_file(barnabas: Barnabas, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "more.properties"
    file.write_text("# a password would be here\nretention.ms = 7000\nsegment.ms=8000\n")
    done = barnabas("config", "set", "--topic", topic, "segment.ms=9000", "--config-file", str(file))
    assert done.out == "set retention.ms, segment.ms\n"
    changed = ["min.insync.replicas\t1", "retention.ms\t7000", "segment.ms\t9000"]
    eventually(
        "the broker has both",
        lambda: ["\t".join(row[:2]) for row in barnabas("config", "show", "--topic", topic).rows] == changed,
    )
    assert barnabas("config", "set", "--topic", topic).err == "barnabas: give KEY=VALUE or --config-file\n"


def test_a_topics_settings_are_set_and_unset(barnabas: Barnabas, topic: str) -> None:
    assert barnabas("config", "set", "--topic", topic, "retention.ms=7000").out == "set retention.ms\n"
    changed = [MIN_ISR_OF_ALL, ["retention.ms", "7000", "DYNAMIC_TOPIC_CONFIG"]]
    eventually("the broker has the change", lambda: barnabas("config", "show", "--topic", topic).rows == changed)
    everything = barnabas("config", "show", "--topic", topic, "--all").rows
    assert ["cleanup.policy", "delete", "DEFAULT_CONFIG"] in everything
    assert barnabas("config", "unset", "--topic", topic, "retention.ms").out == "unset retention.ms\n"
    eventually(
        "the broker has the change", lambda: barnabas("config", "show", "--topic", topic).rows == [MIN_ISR_OF_ALL]
    )


def test_the_defaults_of_all_brokers_are_set_and_unset(barnabas: Barnabas, bootstrap: str) -> None:
    def shown() -> list[list[str]]:
        return barnabas("config", "show", "--broker", "").rows

    key, other = "log.cleaner.backoff.ms", "barnabas.slow.motion.fetcher.ms"
    assert barnabas("config", "set", "--broker", "", f"{key}=14000", f"{other}=1").out == f"set {key}, {other}\n"
    source = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    expected = [[other, "1", source], [key, "14000", source], MIN_ISR_OF_ALL]
    eventually("the broker has the change", lambda: shown() == expected)
    assert barnabas("config", "unset", "--broker", "", key, other).out == f"unset {key}, {other}\n"
    eventually("the broker has the change", lambda: shown() == [MIN_ISR_OF_ALL])
    refused = barnabas("config", "set", "--broker", "", f"{key}=x")
    assert refused.code == 1
    assert refused.err.startswith(f"barnabas: all brokers: Invalid value x for configuration {key}")
    assert refused.err.endswith(" (INVALID_CONFIG)\n") or refused.err.endswith(" (INVALID_REQUEST)\n")


def test_settings_without_effect_give_one_warning(barnabas: Barnabas, topic: str) -> None:
    accepted = barnabas("config", "set", "--broker", "0", "num.io.thread=4")
    assert (accepted.code, accepted.out) == (0, "set num.io.thread\n")
    hint = "unknown config key is ignored: num.io.thread (did you mean num.io.threads?)"
    assert accepted.err == f"barnabas: warning: {hint}\n"
    barnabas("config", "unset", "--broker", "0", "num.io.thread")
    kept = barnabas("config", "set", "--topic", topic, "local.retention.ms=1000")
    assert (kept.code, kept.out) == (0, "set local.retention.ms\n")
    assert kept.err == "barnabas: warning: local.retention.ms has no effect: there is no tiered storage\n"
    refused = barnabas("config", "set", "--topic", topic, "retention.mss=1000")
    assert refused.code == 1
    hint = "Unknown topic config name: retention.mss (INVALID_CONFIG); did you mean retention.ms?"
    assert refused.err == f"barnabas: topic {topic}: {hint}\n"
    protective = barnabas("config", "set", "--broker", "0", "super.users=User:me")
    assert protective.code == 1
    assert "Cannot update these configs dynamically: [super.users] (INVALID_REQUEST)" in protective.err


def test_invalid_settings_are_one_line(barnabas: Barnabas, topic: str) -> None:
    wrong = barnabas("config", "set", "--topic", topic, "retention.ms=x")
    assert wrong.code == 1
    assert wrong.err.startswith(f"barnabas: topic {topic}: Invalid value x for configuration retention.ms")
    assert barnabas("config", "show", "--broker", "9").err == "barnabas: no broker 9 is up; the brokers are 0\n"
    assert ["node.id", "0", "STATIC_BROKER_CONFIG"] in barnabas("config", "show", "--broker", "0").rows


# faults that are switched off


@pytest.mark.parametrize(
    "command",
    [
        "faults add api=Produce error=NOT_LEADER_OR_FOLLOWER",
        "faults list",
        "faults remove f1",
        "faults remove --all",
        "faults record start",
        "faults requests",
        "node slow-disk 0 5",
        "node cut 0 100",
        "node heal 0",
    ],
)
def test_disabled_faults_name_the_key_that_enables_them(
    barnabas: Barnabas, cluster: BarnabasCluster, command: str
) -> None:
    outcome = barnabas(*command.split(), "--data-dir", str(cluster.directory))
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.endswith("accepts no faults: start it with barnabas.faults.enable=true\n")
    assert outcome.err.count("\n") == 1
