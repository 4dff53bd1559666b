"""Asks a broker all questions in the name of all users. Both brokers get the same settings, users and ACLs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.cluster import HOST
from tests.compare.authorization.preparation import Preparation, deleted
from tests.compare.authorization.questions import administration, controllers, groups, records, share, streams
from tests.compare.authorization.questions.build import build
from tests.compare.authorization.questions.question import Question
from tests.compare.authorization.session import Session
from tests.compare.authorization.summary import Summary, summarize
from tests.compare.authorization.users import ADMIN, PASSWORD, Rules, users

#: By question and version, then by user.
Answers = dict[str, dict[str, Summary]]


class Case(NamedTuple):
    """A question by a user."""

    question: Question
    user: str  # in words


def questions() -> list[Question]:
    """Return all questions."""
    asked = (records, groups, share, streams, administration, controllers)
    return [question for some in asked for question in some.questions()]


def cases() -> Mapping[Rules, list[Case]]:
    """Return what each user asks; users who have the same rules are one."""
    found: dict[Rules, list[Case]] = defaultdict(list)
    for question in questions():
        for user, rules in users(question.key):
            found[rules].append(Case(question, user))
    return found


def settings(ports: tuple[int, int]) -> dict[str, str]:
    """Return the settings of a broker that listens on these ports: for nodes, and for clients, who must log in.

    Clients and brokers log in at the controller too.
    """
    logins = " ".join(f'user_{name}="{PASSWORD}"' for name in (ADMIN, *_logins(cases()).values()))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "listeners": f"PLAINTEXT://{HOST}:{ports[0]},CLIENTS://{HOST}:{ports[1]}",
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f"{module} {logins};",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{module} username="{ADMIN}" password="{PASSWORD}" {logins};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "delegation.token.secret.key": PASSWORD,
        "group.consumer.max.session.timeout.ms": "3600000",
        "group.consumer.session.timeout.ms": "3600000",
        "group.consumer.max.heartbeat.interval.ms": "3600000",
        "group.share.max.session.timeout.ms": "3600000",
        "group.share.session.timeout.ms": "3600000",
        "group.share.max.heartbeat.interval.ms": "3600000",
    }


def answers(port: int, controller_port: int) -> Answers:
    """Prepare a fresh cluster and return its answers."""
    found: Answers = defaultdict(dict)
    asked = cases()
    logins = _logins(asked)
    with Session(port, ADMIN, PASSWORD) as admin:
        preparation = Preparation(admin)
        preparation.prepare(logins)
        for rules, login in logins.items():
            with Session(port, login, PASSWORD) as broker, Session(controller_port, login, PASSWORD) as controller:
                for case in asked[rules]:
                    session = controller if case.question.asks_controller else broker
                    for name, answer in _ask(case.question, session, preparation):
                        found[name][case.user] = answer
    return found


def _logins(asked: Mapping[Rules, object]) -> dict[Rules, str]:
    return {rules: f"user{number}" for number, rules in enumerate(asked)}


def _ask(question: Question, session: Session, preparation: Preparation) -> Iterator[tuple[str, Summary]]:
    world = preparation.world
    for version in question.versions():
        response = session.ask(build(question.key, question.fields(world, version)), version)
        yield f"{question.name} v{version}", summarize(response, world.known)
        if question.deletes:
            preparation.restore_topics(deleted(response))
