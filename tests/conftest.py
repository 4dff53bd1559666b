"""Fixtures that several packages of tests share, the logs of the processes beside a failed test, and what is rerun."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import reruns
from tests.support.kafka.kafka_jars import KafkaRuntime, KafkaRuntimeError, kafka_runtime
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.programs import needed_by, require

_shown: set[str] = set()  # logs that an earlier report has: tests that share a cluster may fail by the hundred

# Tests are not timed: by default, Hypothesis fails an example of more than 200 ms, which a busy machine may need.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this project's test runs."""
    parser.addoption(
        "--target",
        choices=("barnabas", "apache"),
        default="barnabas",
        help="what the client tests talk to; `apache` checks the tests against Apache Kafka",
    )
    parser.addoption("--kills", type=int, default=30, help="how many processes the crash tests kill in all")
    parser.addoption("--faults", type=int, default=8, help="how many faults the short stress run has")
    parser.addoption("--deeds", type=int, default=12, help="how many things happen in the short churn run")
    parser.addoption("--eos-kills", type=int, default=6, help="how many processes the short exactly-once run kills")
    parser.addoption("--packages", help="where tests/packaging leaves what it makes (default: nowhere)")
    parser.addoption("--seed", type=int, default=20130101, help="what crash and stress tests' moments derive from")


def pytest_configure(config: pytest.Config) -> None:
    """Register this project's own marker, and bound the reruns."""
    config.addinivalue_line("markers", "needs(program, ...): programs beside Python, from tests/support/programs.py")
    reruns.configure(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that run once more if a wait ran out."""
    reruns.mark(config, items)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """Do not run a test again that ended its process."""
    reruns.end_of_worker(sched.config, crashitem)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, bool | None, bool | None]:
    """Put back the handlers that a test has set, such as one that calls a server's main function."""
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        return (yield)
    finally:
        for number, handler in former.items():
            if handler is not None:  # None: not set by Python
                signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose programs are missing, before its fixtures are set up; `make test` fails it instead."""
    require(needed_by(item))


@pytest.fixture(scope="session")
def apache_runtime() -> KafkaRuntime:
    """Apache Kafka's jars and a JVM."""
    try:
        return kafka_runtime()
    except KafkaRuntimeError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def tools(apache_runtime: KafkaRuntime) -> Iterator[KafkaTools]:
    """Apache Kafka's command-line tools."""
    runner = KafkaTools(apache_runtime)
    yield runner
    runner.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the logs of the test's cluster, if it has one, to the report of a failure."""
    report = yield
    if report.failed:
        for fixture in getattr(item, "funcargs", {}).values():
            logs = getattr(fixture, "logs", None)
            if callable(logs):
                report.sections += [(f"log of {name}", text) for name, text in logs().items() if text not in _shown]
                _shown.update(logs().values())
    return report
