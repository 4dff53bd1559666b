"""Clients in four languages see the faults of brokers, as far as their libraries report them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from barnabas.faults import Fault
from barnabas.protocol.errors import ErrorCode
from barnabas.testing import Cluster, cluster
from tests.faults_in_languages.languages import LANGUAGES, PROGRAMS, Program

_numbers = itertools.count()
OK = 0


@dataclass(frozen=True)
class Case:
    """A command while a fault is active, the error code of the library, and how often the fault must fire."""

    command: str
    fault: Fault
    code: int
    fired: int = 1

    def __str__(self) -> str:
        return f"{self.command}: {self.fault}"


CASES = (
    # Errors that no client retries are reported.
    Case(
        "produce",
        Fault(api="Produce", error="TOPIC_AUTHORIZATION_FAILED"),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    Case("produce", Fault(api="Produce", error="RECORD_LIST_TOO_LARGE"), ErrorCode.RECORD_LIST_TOO_LARGE),
    Case("consume", Fault(api="Fetch", error="TOPIC_AUTHORIZATION_FAILED"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    Case("join", Fault(api="JoinGroup", error="GROUP_AUTHORIZATION_FAILED"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    Case("create", Fault(api="CreateTopics", error="POLICY_VIOLATION", sender="any"), ErrorCode.POLICY_VIOLATION),
    # Retriable errors are retried, and the command succeeds.
    Case("produce", Fault(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2), OK, fired=2),
    Case("produce", Fault(api="Produce", disconnect=True, times=1), OK),
    Case("produce", Fault(api="Produce", delay_ms=200, times=1), OK),
    Case("consume", Fault(api="Fetch", error="NOT_LEADER_OR_FOLLOWER", times=1), OK),
    Case("join", Fault(api="FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", times=2), OK, fired=2),
    Case("join", Fault(api="SyncGroup", error="REBALANCE_IN_PROGRESS", times=1), OK),
    # Clients use the versions of an older Kafka.
    Case("produce", Fault(api_versions="2.8"), OK),
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with cluster(config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


def _language(name: str) -> object:
    """Return a parameter that is skipped without the programs of its language."""
    return pytest.param(name, marks=pytest.mark.needs(*PROGRAMS[name]))


@pytest.fixture(scope="module", params=map(_language, LANGUAGES))
def program(
    request: pytest.FixtureRequest, kafka: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Program]:
    """A running program of one language."""
    language = str(request.param)
    running = Program(LANGUAGES[language](), kafka.bootstrap, tmp_path_factory.mktemp(language) / "stderr")
    yield running
    running.close()


@pytest.fixture(scope="module")
def topic(kafka: Cluster, program: Program) -> str:
    """Return a topic with a record for this language."""
    name = kafka.create_topic("seen")
    answer = program.do("produce", name)
    assert answer.code == OK, answer.line
    assert len(kafka.records(name)) == 1
    return name


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_client_reports_a_fault(program: Program, kafka: Cluster, topic: str, case: Case) -> None:
    number = next(_numbers)
    words = {"join": [topic, f"group-{number}"], "create": [f"created-{number}"]}.get(case.command, [topic])
    with kafka.faults.add(case.fault) as fault:
        answer = program.do(case.command, *words)
        fired = fault.fired
    assert answer.code == case.code, answer.line
    assert fired >= case.fired
    if case.code != OK:
        words = [f"{word}-again" if word.startswith(("group-", "created-")) else word for word in words]
        answer = program.do(case.command, *words)  # the fault is removed
        assert answer.code == OK, answer.line


def test_clients_use_the_versions_of_an_older_kafka(program: Program, kafka: Cluster, topic: str) -> None:
    with kafka.faults.recorder, kafka.faults.add(Fault(api_versions="2.8")):
        assert program.do("produce", topic).code == OK
        seen = {request.version for request in kafka.faults.recorder.requests(api="Produce", topic=topic)}
    assert seen
    assert max(seen) <= 9
