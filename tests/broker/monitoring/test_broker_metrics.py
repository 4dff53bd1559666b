"""The gauges of a broker's components, and the counts of topics.

Tests broker_metrics.py and topic_stats.py of broker/monitoring.
"""

from __future__ import annotations

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.monitoring import broker_metrics
from barnabas.broker.monitoring.broker_metrics import ClientMetrics
from barnabas.broker.monitoring.topic_stats import FAILED_PRODUCE
from barnabas.common.clock import FakeClock
from barnabas.metrics.page.exposition import Exposition
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import CLIENTS_MAX, RequestMetrics, ThreadRecorder
from barnabas.metrics.table import catalogue
from tests.support.broker.broker_rig import BrokerRig, batch, produce, state

SCRAPE_MS_MAX = 100


def make_rig(**settings: str) -> BrokerRig:
    rig = BrokerRig(**settings)
    broker_metrics.register_partitions(rig.registry, rig.manager)
    broker_metrics.register_logs(rig.registry, rig.log_manager)
    broker_metrics.register_late_transactions(rig.registry, rig.manager)
    return rig


def numbers(rig: BrokerRig, **labels: str) -> dict[str, float]:
    """Return the series with exactly these labels, by the last part of their names."""
    page = Exposition(rig.registry).render().decode()
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
def test_a_leader_shows_its_isr(isr: tuple[int, ...], under_replicated: int, under_min: int, at_min: int) -> None:
    rig = make_rig(min_insync_replicas="2")
    rig.push({"t": [state(1, (1, 2, 3), isr)]})
    found = numbers(rig, topic="t", partition="0")
    assert found["underreplicated"] == under_replicated
    assert found["underminisr"] == under_min
    assert found["atminisr"] == at_min
    assert (found["replicascount"], found["insyncreplicascount"]) == (3, len(isr))
    whole = numbers(rig)
    assert whole["underreplicatedpartitions"] == under_replicated
    assert whole["underminisrpartitioncount"] == under_min


def test_a_follower_shows_its_log_only() -> None:
    rig = make_rig()
    rig.push({"t": [state(2, (1, 2, 3))]})
    found = numbers(rig, topic="t", partition="0")
    isr = ("underreplicated", "underminisr", "atminisr", "replicascount", "insyncreplicascount")
    assert {found[name] for name in isr} == {0}
    assert found["numlogsegments"] == 1


def test_a_log_shows_its_offsets_and_size() -> None:
    rig = make_rig(log_retention_bytes="1000")
    rig.push({"t": [state(1)]})
    rig.answer(produce(batch(b"a", b"b", b"c")), 9)
    found = numbers(rig, topic="t", partition="0")
    log = rig.manager.partitions()[0].log
    assert log is not None
    assert (found["logstartoffset"], found["logendoffset"], found["highwatermark"]) == (0, 3, 3)
    assert found["size"] == log.size_in_bytes > 0
    assert found["retentionsizeinpercent"] == log.size_in_bytes * 100 // 1000
    assert found["laststableoffsetlag"] == 0


def test_a_removed_topic_loses_its_series_but_not_its_counts() -> None:
    rig = make_rig()
    rig.push({"t": [state(1)]})
    rig.answer(produce(batch(b"a")), 9)
    assert numbers(rig, topic="t")["messagesinpersec"] == 1
    rig.manager.stats.remove("t")
    assert "messagesinpersec" not in numbers(rig, topic="t")
    assert numbers(rig)["messagesinpersec"] == 1


def rates(rig: BrokerRig, name: str) -> dict[str, float]:
    """Return the rates of the topic t."""
    start = f"kafka_server_brokertopicmetrics_{name}_"
    page = Exposition(rig.registry).render().decode()
    return {
        sample.name.removeprefix(start).removesuffix("rate"): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels == {"topic": "t"} and sample.name.startswith(start) and sample.name.endswith("rate")
    }


def test_a_first_scrape_that_comes_late_shows_true_rates() -> None:
    rig = make_rig()

    def produce_for(seconds: int) -> dict[str, float]:
        for _ in range(seconds):
            rig.advance_ms(1000)
            rig.manager.stats.topic("t").appended(1000, 1)
        return rates(rig, "bytesinpersec")

    rig.manager.stats.topic("t")
    for seconds in (3600, 15, 15):
        assert produce_for(seconds) == {"mean": 1000, "oneminute": 1000, "fiveminute": 1000, "fifteenminute": 1000}


def test_the_rate_of_what_happens_for_the_first_time_is_that_since_the_last_scrape() -> None:
    rig = make_rig()
    stats = rig.manager.stats.topic("t")
    stats.appended(1000, 1)
    rig.advance_ms(3_600_000)
    assert not rates(rig, "failedproducerequestspersec")
    stats.count(FAILED_PRODUCE, 1500)
    rig.advance_ms(15_000)
    assert rates(rig, "failedproducerequestspersec")["oneminute"] == 100


def test_an_idle_share_is_at_most_1() -> None:
    registry = Registry(clock := FakeClock())
    meter = registry.meter(catalogue.REQUEST_HANDLER_AVG_IDLE_PERCENT)
    clock.advance_ms(6000)
    meter.mark(7_000_000_000)  # handlers report their idle time up to two seconds late
    page = Exposition(registry).render().decode()
    assert "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent 1.0\n" in page


def test_clients_are_counted_limited_and_dropped() -> None:
    rig = make_rig()
    requests = RequestMetrics(rig.registry)
    ClientMetrics(rig.registry, requests)

    def record(client: str) -> None:
        requests.recorder().record("Produce", 9, (0, 4_000_000, 0, 2_000_000, 0, 1_000_000), 70, None, 50, client, 30)

    for _ in range(30):
        record("a")
    record("b")
    a = numbers(rig, client_id="a")
    assert (a["rate"], a["time"]) == (100, 0), "3000 bytes in half a minute; no quota throttles"
    page = Exposition(rig.registry).render().decode()
    assert 'barnabas_client_requests_total{client_id="a"} 30.0\n' in page
    assert 'barnabas_client_request_bytes_total{client_id="b"} 100.0\n' in page
    assert 'kafka_server_request_request_time{client_id="a"} 0.5\n' in page, "150 of 30,000 ms"
    rig.advance_ms(3_600_000)
    record("b")
    assert 'client_id="a"' not in Exposition(rig.registry).render().decode()
    for number in range(3 * CLIENTS_MAX):
        record(f"made-up-{number}")
    assert Exposition(rig.registry).render().count(b"barnabas_client_requests_total{") <= CLIENTS_MAX


def test_the_page_shows_so_many_clients_those_that_were_active_last() -> None:
    rig = make_rig()
    requests = RequestMetrics(rig.registry)
    ClientMetrics(rig.registry, requests)
    threads = [requests._threads.setdefault(ident, ThreadRecorder(requests._add)) for ident in (-1, -2)]
    times = (0, 0, 0, 0, 0, 0)

    def shown() -> set[str]:
        page = Exposition(rig.registry).render().decode()
        return {line.split('"')[1] for line in page.splitlines() if line.startswith("kafka_server_produce_byte_rate{")}

    for number in range(CLIENTS_MAX):
        for ident, thread in enumerate(threads):
            thread.record("Produce", 9, times, 70, client_id=f"{ident}-{number}")
    assert len(shown()) == CLIENTS_MAX
    rig.advance_ms(1000)
    for number in range(CLIENTS_MAX):
        threads[1].record("Produce", 9, times, 70, client_id=f"1-{number}")
    assert shown() == {f"1-{number}" for number in range(CLIENTS_MAX)}


def test_a_scrape_of_a_thousand_partitions_is_quick() -> None:
    """The shortest CPU time of its thread counts, so other processes have no influence."""
    rig = make_rig()
    names = [f"topic-{number}" for number in range(100)]
    rig.push({name: [state(1, (1, 2, 3)) for _ in range(10)] for name in names})
    requests = RequestMetrics(rig.registry)
    exposition = Exposition(rig.registry)

    def work() -> None:
        for name in names:
            rig.manager.stats.topic(name).appended(1000, 10)
        for number in range(500):
            times = (number * 1000, 200_000, 0, 0, 70_000, 90_000)
            requests.recorder().record(f"Api{number % 15}", 9, times, number, None, 60, f"client-{number % 20}", 40)

    took_ms = []
    for _ in range(6):
        work()
        rig.advance_ms(5000)
        started_s = time.thread_time()
        page = exposition.render()
        took_ms.append((time.thread_time() - started_s) * 1000)
    assert page.count(b"\nkafka_log_log_size{") == 1000
    assert min(took_ms) < SCRAPE_MS_MAX


def test_log_directories_show_size_and_free_space(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    (directory,) = rig.log_manager.directories
    total, usable = directory.usage()
    labels = {"logDirectory": directory.path, "logdirectory": directory.path}

    def shown() -> list[float]:
        families = text_string_to_metric_families(Exposition(rig.registry).render().decode())
        wanted = ("barnabas_log_directory_size_bytes", "barnabas_log_directory_free_bytes")
        return [s.value for family in families for s in family.samples if s.name in wanted and s.labels == labels]

    assert shown() == [total, usable]

    def fails() -> tuple[int, int]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(type(directory), "usage", lambda _self: fails())
    assert shown() == [], "no number is better than one of another time"
