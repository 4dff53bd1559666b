"""`barnabas explain` of a real broker."""

from __future__ import annotations

import json
import re

from confluent_kafka import Consumer

from tests.barnabas.cli.conftest import Barnabas
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually


def test_a_partition(barnabas: Barnabas, topic: str) -> None:
    outcome = barnabas("explain", "partition", f"{topic}-1")
    assert outcome.code == 0
    assert outcome.out.startswith(f"{topic}-1 is led by broker 0 in leader epoch 0 (partition epoch 0). Its replica")
    assert "Its log is empty; the next record gets offset 0 " in outcome.out
    (row,) = json.loads(barnabas("explain", "partition", f"{topic}-1", "--json").out)
    assert (row["broker"], row["topic"], row["partition"], row["role"]) == (0, topic, 1, "leader")


def test_an_unknown_name_is_one_line(barnabas: Barnabas, topic: str) -> None:
    for arguments, error in (
        (["partition", f"{topic}-2"], f"no broker that answers has a partition {topic}-2"),
        (["partition", topic], f"'{topic}' is not TOPIC-PARTITION, for example orders-0"),
        (["group", "nobody"], "no broker that answers coordinates a group nobody"),
        (["request", "--client", "nobody"], "no such request is in progress or kept as slow"),
        (["request"], "give a correlation id, --client, --api or --slowest"),
    ):
        outcome = barnabas("explain", *arguments)
        code = 2 if arguments in ([*arguments[:1], topic], ["request"]) else 1
        assert (outcome.code, outcome.out, outcome.err) == (code, "", f"barnabas: {error}\n")


def test_a_group_and_a_request_that_is_parked(barnabas: Barnabas, bootstrap: str, topic: str) -> None:
    """A consumer that waits for records, explained by its group and by its fetch."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "explained", "client.id": "a-reader"})
    try:
        consumer.subscribe([topic])
        eventually("it has partitions", lambda: consumer.poll(0.05) or consumer.assignment())
        outcome = barnabas("explain", "group", "explained")
        assert outcome.code == 0
        assert outcome.out.startswith("explained is a classic group, Stable for ")
        assert "It is stable: 1 member in generation 1." in outcome.out
        assert re.search(
            rf"client a-reader, 127\.0\.0\.1\), the leader: it has joined; it owns {topic}-0 and", outcome.out
        )
        assert f"{topic}-0: nothing committed, its end is 0" in outcome.out
        (row,) = json.loads(barnabas("explain", "group", "explained", "--json").out)
        assert (row["coordinator"], row["state"], len(row["positions"])) == (0, "Stable", 2)

        def fetch() -> str:
            consumer.poll(0.05)
            return next(iter(re.findall(r"^Fetch v.* of client a-reader, .*", parked().out, re.M)), "")

        def parked():
            return barnabas("explain", "request", "--client", "a-reader")

        assert "on broker 0 (connection 127.0.0.1:" in eventually("its fetch is shown", fetch)
        waits = rf"^  Fetch of client a-reader waits for 1 byte of .*{topic}"
        eventually("it waits", lambda: consumer.poll(0.05) or re.search(waits, parked().out, re.M))
    finally:
        consumer.close()


def test_the_slowest_request_is_found_again_by_its_correlation_id(barnabas: Barnabas, topic: str) -> None:
    slowest = barnabas("explain", "request", "--slowest", "--max", "1")
    assert slowest.code == 0
    assert re.search(r": done .* ago, in .*\.$", slowest.out.splitlines()[0])
    assert re.search(r"^  Longest: .*, \d+ % of the time\.$", slowest.out, re.M)
    (row,) = json.loads(barnabas("explain", "request", "--slowest", "--max", "1", "--json").out)
    again = barnabas("explain", "request", str(row["correlation_id"]), "--max", "100")
    assert f"{row['api']} v{row['version']}, correlation id {row['correlation_id']}, " in again.out


def test_the_address_of_a_page_can_be_given(barnabas: Barnabas, cluster: BarnabasCluster, topic: str) -> None:
    address = f"127.0.0.1:{cluster.nodes[0].metrics_port}"
    assert barnabas("explain", "partition", f"{topic}-0", "--page", address, "--bootstrap", "127.0.0.1:1").code == 0
    refused = barnabas("explain", "partition", f"{topic}-0", "--page", "127.0.0.1:1")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "barnabas: its page at 127.0.0.1:1 does not answer (Connection refused)\n"
