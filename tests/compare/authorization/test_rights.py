"""Barnabas answers as Apache Kafka does to users who lack a right: thousands of cases from THE table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.authorization.table import BROKER_RIGHTS, CONTROLLER_RIGHTS, NO_RIGHTS
from barnabas.cluster import Node, free_ports
from barnabas.protocol.api_keys import ApiKey as Key
from tests.compare.authorization import deviations, golden
from tests.compare.authorization.replay import Answers, answers, questions, settings
from tests.support.cluster import BarnabasCluster

#: APIs that an Apache Kafka broker does not serve, or not to clients, and those of the quorum of controllers, which our
#: brokers do not forward.
FOR_NODES = {
    Key.LEADER_AND_ISR,
    Key.STOP_REPLICA,
    Key.UPDATE_METADATA,
    Key.ENVELOPE,
    Key.FETCH_SNAPSHOT,
    Key.VOTE,
    Key.BEGIN_QUORUM_EPOCH,
    Key.END_QUORUM_EPOCH,
    Key.UPDATE_RAFT_VOTER,
    Key.CONTROLLER_REGISTRATION,
}


class SecuredCluster(BarnabasCluster):
    """A cluster whose broker has a listener on which clients must log in."""

    def properties(self, node: Node) -> dict[str, str]:
        """Keep the settings of the clients' listener from the controller, which has none."""
        given = super().properties(node)
        if node.role == "controller":
            return {key: value for key, value in given.items() if not key.startswith("listener.name.clients.")}
        return given


@pytest.fixture(scope="module")
def our_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """The answers of an unused broker."""
    nodes_port, clients_port = free_ports(2)
    config = settings((nodes_port, clients_port))
    directory = tmp_path_factory.mktemp("authorization")
    with SecuredCluster(directory, broker_count=1, first_port=0, config=config) as cluster:
        yield answers(clients_port, cluster.controller.port)


@pytest.mark.parametrize("question", golden.load())
def test_each_user_gets_kafkas_answer(question: str, our_answers: Answers) -> None:
    theirs = {user: deviations.expected(question, answer) for user, answer in golden.load()[question].items()}
    ours = our_answers[question]
    differing = {user: {"kafka": theirs[user], "ours": ours[user]} for user in theirs if ours[user] != theirs[user]}
    assert [user for user in differing if not deviations.is_deliberate(question, user)] == [], differing


def test_every_api_that_asks_for_a_right_is_compared() -> None:
    asked = {question.key for question in questions()}
    assert set(BROKER_RIGHTS) | set(CONTROLLER_RIGHTS) == asked.difference(NO_RIGHTS) | FOR_NODES


def test_there_are_thousands_of_cases(our_answers: Answers) -> None:
    theirs = golden.load()
    assert {name: set(users) for name, users in our_answers.items()} == {
        name: set(users) for name, users in theirs.items()
    }
    assert sum(map(len, theirs.values())) > 10_000
