"""Each measurement once, very small, on Barnabas: it returns figures of the table, all above zero."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas.common.clock import SystemClock
from benchmarks.bench import Bench, Size
from benchmarks.load import clients
from benchmarks.load.load_generator import LoadGenerator, LoadGeneratorError
from benchmarks.report.figures import FIGURES
from benchmarks.systems import SETTINGS, Barnabas, Kind, System, port_of, running
from benchmarks.workloads import MEASUREMENTS
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import SMALL_JVM

# Large enough to run everything, too small to measure anything.
TINY = Size(
    records_1k=2_000,
    records_100=5_000,
    records_read=500,
    records_replicated=500,
    records_first=500,
    records_first_replicated=500,
    latencies=50,
    latencies_warm_up=10,
    loop_ms=200,
    loop_warm_up_ms=50,
    partitions=20,
    idle=(50, 100),
    groups=2,
    producers=(1, 10),
    settle_ms=0,
)
# Groups are assigned at once: share groups by the heartbeats of their members, classic ones after a delay.
AT_ONCE = {
    **SETTINGS,
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}
# Measurements that differ only by a number, or by the kind of system, from the one that runs in their place.
SAME = {
    "small-1x1": "small-32x2",
    "metadata-1x1": "metadata-32x2",
    "groups-848": "groups",
    "produce-100": "produce-1k",
    "first-load-secure": "first-load",
    "acls-produce-1k": "acls-32x2",
}


@pytest.fixture(scope="module", autouse=True)
def small_jvms() -> Iterator[None]:
    """Clients that run for a second compile little: the JVMs of a real measurement would compile most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CLIENT_JVM", "MANY_CLIENTS_JVM"):
            patch.setattr(clients, name, SMALL_JVM)
        yield


@pytest.fixture(scope="module")
def bench(apache_runtime: KafkaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The measurements' tools, with the smallest size."""
    clock = SystemClock()
    return Bench(apache_runtime, LoadGenerator(tmp_path_factory.mktemp("generator"), clock), clock, TINY)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One running broker."""
    with running(Barnabas(tmp_path_factory.mktemp("one"), settings=AT_ONCE)) as system:
        yield system


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", [name for name in MEASUREMENTS if name not in SAME])
def test_a_measurement_returns_its_figures(
    name: str, bench: Bench, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    row = MEASUREMENTS[name]
    with ExitStack() as stack:
        if row.kind == Kind() and not row.starts_it:
            system = request.getfixturevalue("one")
        else:
            system = Barnabas(tmp_path / "own", row.kind.brokers, SETTINGS, is_secured=row.kind.is_secured)
            if not row.starts_it:
                stack.enter_context(running(system))
        once = stack.enter_context(row.measure(bench, system))
        samples = once()
    assert samples.keys() <= FIGURES.keys()
    assert not row.warm_by or row.warm_by in samples
    assert all(value > 0 for value in samples.values())


def test_the_table_of_measurements_names_known_figures() -> None:
    assert {row.warm_by for row in MEASUREMENTS.values()} - {""} <= FIGURES.keys()
    assert set(SAME) | set(SAME.values()) <= MEASUREMENTS.keys()


@pytest.mark.needs("gcc")
def test_an_error_response_ends_the_measurement(one: System, tmp_path: Path) -> None:
    generator = LoadGenerator(tmp_path, SystemClock(), answer_timeout_ms=100)
    for work in (generator.metadata_work, lambda port, topic: generator.produce_work(port, topic, 1)):
        with pytest.raises(LoadGeneratorError, match="answered without an error"):
            work(port_of(one), "there-is-none")
