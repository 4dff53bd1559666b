"""What a broker's page reads off its rooms."""

from __future__ import annotations

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker import broker_metrics
from barnabas.broker.broker_metrics import ClientMetrics
from barnabas.metrics.exposition import Exposition
from barnabas.metrics.request_metrics import CLIENTS_MAX, RequestMetrics
from tests.support.broker_room import BrokerRoom, batch, produce, state

SCRAPE_MS_MAX = 100


def make_room(**settings: str) -> BrokerRoom:
    room = BrokerRoom(**settings)
    broker_metrics.register_partitions(room.registry, room.manager)
    broker_metrics.register_logs(room.registry, room.log_manager)
    broker_metrics.register_late_transactions(room.registry, room.manager)
    return room


def numbers(room: BrokerRoom, **labels: str) -> dict[str, float]:
    """The series that have just these labels, by the last part of their name."""
    page = Exposition(room.registry).render().decode()
    return {
        sample.name.rpartition("_")[2]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels == labels
    }


@pytest.mark.parametrize(
    ("isr", "under_replicated", "under_min", "at_min"),
    [((1, 2, 3), 0, 0, 0), ((1, 2), 1, 0, 1), ((1,), 1, 1, 0)],
)
def test_a_leader_tells_of_its_isr(isr: tuple[int, ...], under_replicated: int, under_min: int, at_min: int) -> None:
    room = make_room(min_insync_replicas="2")
    room.push({"t": [state(1, (1, 2, 3), isr)]})
    found = numbers(room, topic="t", partition="0")
    assert found["underreplicated"] == under_replicated
    assert found["underminisr"] == under_min
    assert found["atminisr"] == at_min
    assert (found["replicascount"], found["insyncreplicascount"]) == (3, len(isr))
    whole = numbers(room)
    assert whole["underreplicatedpartitions"] == under_replicated
    assert whole["underminisrpartitioncount"] == under_min


def test_a_follower_tells_of_its_log_only() -> None:
    room = make_room()
    room.push({"t": [state(2, (1, 2, 3))]})
    found = numbers(room, topic="t", partition="0")
    isr = ("underreplicated", "underminisr", "atminisr", "replicascount", "insyncreplicascount")
    assert {found[name] for name in isr} == {0}
    assert found["numlogsegments"] == 1


def test_a_log_tells_its_offsets_and_size() -> None:
    room = make_room(log_retention_bytes="1000")
    room.push({"t": [state(1)]})
    room.answer(produce(batch(b"a", b"b", b"c")), 9)
    found = numbers(room, topic="t", partition="0")
    log = room.manager.partitions()[0].log
    assert log is not None
    assert (found["logstartoffset"], found["logendoffset"], found["highwatermark"]) == (0, 3, 3)
    assert found["size"] == log.size_in_bytes > 0
    assert found["retentionsizeinpercent"] == log.size_in_bytes * 100 // 1000
    assert found["laststableoffsetlag"] == 0


def test_a_topic_that_leaves_takes_its_lines_but_not_its_counts() -> None:
    room = make_room()
    room.push({"t": [state(1)]})
    room.answer(produce(batch(b"a")), 9)
    assert numbers(room, topic="t")["messagesinpersec"] == 1
    room.manager.stats.remove("t")
    assert "messagesinpersec" not in numbers(room, topic="t")
    assert numbers(room)["messagesinpersec"] == 1


def test_clients_are_told_apart_bounded_and_forgotten() -> None:
    room = make_room()
    requests = RequestMetrics(room.registry)
    ClientMetrics(room.registry, requests)

    def record(client: str) -> None:
        requests.recorder().record("Produce", 9, (0, 4_000_000, 0, 2_000_000, 0, 1_000_000), 70, None, 50, client, 30)

    for _ in range(30):
        record("a")
    record("b")
    a = numbers(room, client_id="a")
    assert (a["rate"], a["time"]) == (100, 2), "3000 bytes in half a minute; throttled for 2 ms on average"
    page = Exposition(room.registry).render().decode()
    assert 'barnabas_client_requests_total{client_id="a"} 30\n' in page
    assert 'barnabas_client_request_bytes_total{client_id="b"} 100\n' in page
    assert 'kafka_server_request_request_time{client_id="a"} 0.5\n' in page, "150 of 30,000 ms"
    room.advance_ms(3_600_000)
    record("b")
    assert 'client_id="a"' not in Exposition(room.registry).render().decode()
    for number in range(3 * CLIENTS_MAX):
        record(f"made-up-{number}")
    assert Exposition(room.registry).render().count(b"barnabas_client_requests_total{") <= CLIENTS_MAX


def test_a_scrape_of_a_thousand_partitions_is_quick() -> None:
    """In time of its own thread, the best of some: what others do on this machine does not count."""
    room = make_room()
    names = [f"topic-{number}" for number in range(100)]
    room.push({name: [state(1, (1, 2, 3)) for _ in range(10)] for name in names})
    requests = RequestMetrics(room.registry)
    exposition = Exposition(room.registry)

    def work() -> None:
        for name in names:
            room.manager.stats.topic(name).appended(1000, 10)
        for number in range(500):
            times = (number * 1000, 200_000, 0, 0, 70_000, 90_000)
            requests.recorder().record(f"Api{number % 15}", 9, times, number, None, 60, f"client-{number % 20}", 40)

    took_ms = []
    for _ in range(6):
        work()
        room.advance_ms(5000)
        started_s = time.thread_time()
        page = exposition.render()
        took_ms.append((time.thread_time() - started_s) * 1000)
    assert page.count(b"\nkafka_log_log_size{") == 1000
    assert min(took_ms) < SCRAPE_MS_MAX


def test_log_directories_tell_their_size_and_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    room = make_room()
    (directory,) = room.log_manager.directories
    total, usable = directory.usage()
    labels = {"logDirectory": directory.path, "logdirectory": directory.path}

    def shown() -> list[float]:
        families = text_string_to_metric_families(Exposition(room.registry).render().decode())
        wanted = ("barnabas_log_directory_size_bytes", "barnabas_log_directory_free_bytes")
        return [s.value for family in families for s in family.samples if s.name in wanted and s.labels == labels]

    assert shown() == [total, usable]

    def fails() -> tuple[int, int]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(type(directory), "usage", lambda _self: fails())
    assert shown() == [], "no number is better than one of another time"
