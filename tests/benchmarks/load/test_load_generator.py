"""The load generator in C, and idle connections, against the null responder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.common.clock import SystemClock
from benchmarks.bench import MANY, ONE
from benchmarks.load.load_generator import LoadGenerator, LoadGeneratorError, Loop, Work
from benchmarks.workloads.requests import CONNECTIONS_PER_ADDRESS, IdleConnections
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("gcc")

ANSWER_BYTES = 60
FRAME = bytes([0, 0, 0, 10, *bytes(10)])
WORK = Work([FRAME], 8 + ANSWER_BYTES, 8)


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> LoadGenerator:
    """The compiled load generator."""
    return LoadGenerator(tmp_path_factory.mktemp("generator"), SystemClock())


@pytest.mark.parametrize("loop", [MANY, ONE], ids=["32x2", "1x1"])
def test_it_measures_its_own_limit(generator: LoadGenerator, loop: Loop) -> None:
    result = generator.own_limit(loop, 200, ANSWER_BYTES)
    assert result.requests_per_second > 0
    assert result.answers > result.requests_per_second / 5
    assert 0 < result.p50_ms <= result.p99_ms <= result.p999_ms
    assert 0 < result.generator_cpu_share <= 2


def test_requests_in_flight_are_faster_than_one_by_one(generator: LoadGenerator) -> None:
    def gains() -> bool:
        one, many = (generator.own_limit(Loop(1, in_flight), 200, ANSWER_BYTES) for in_flight in (1, 50))
        return many.requests_per_second > one.requests_per_second

    eventually("the machine gives both of them time", gains)


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (replace(WORK, answer_bytes=70), "refused"),
        (replace(WORK, error_code_offset=3), "refused"),  # the lowest byte of the size, as an error code
        (replace(WORK, error_code_offset=100), "too short"),
    ],
)
def test_responses_are_checked(generator: LoadGenerator, work: Work, error: str) -> None:
    with generator.null_responder(ANSWER_BYTES) as port, pytest.raises(LoadGeneratorError, match=error):
        generator.run(port, work, ONE, 0, 50)


def test_idle_connections_stay_open(generator: LoadGenerator) -> None:
    with generator.null_responder(ANSWER_BYTES) as port, IdleConnections(port) as idle:
        idle.hold(10)
        idle.hold(CONNECTIONS_PER_ADDRESS + 10)
        idle.check()
        assert generator.run(port, WORK, ONE, 0, 50).requests_per_second > 0


def test_a_closed_idle_connection_is_noticed(generator: LoadGenerator) -> None:
    with generator.null_responder(ANSWER_BYTES) as port:
        idle = IdleConnections(port)
        idle.hold(3)
    with idle, pytest.raises(AssertionError, match="3 of 3"):
        idle.check()
