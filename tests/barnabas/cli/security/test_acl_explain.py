"""The reasons that `barnabas acl explain` gives."""

from __future__ import annotations

import pytest

from barnabas.cli.security.acl_explain import Question, is_allowed, unless, verdict, why, why_not
from barnabas.cli.security.acl_words import Resource
from barnabas.security.acls.index import AclIndex
from barnabas.security.acls.rules import AclRules, Decision
from barnabas.security.values import AclBinding, AclOperation, PatternType, PermissionType, ResourceType

QUESTION = Question("User:alice", "10.0.0.1", AclOperation.READ, Resource(ResourceType.TOPIC, "t"))


def acl(
    operation: AclOperation = AclOperation.READ,
    *,
    principal: str = "User:alice",
    host: str = "*",
    is_denied: bool = False,
) -> AclBinding:
    """An ACL of the topic of QUESTION."""
    permission = PermissionType.DENY if is_denied else PermissionType.ALLOW
    kind, name = QUESTION.resource
    return AclBinding(
        repr((operation, principal, host)).encode(),
        kind,
        name,
        PatternType.LITERAL,
        principal,
        host,
        operation,
        permission,
    )


def decided(*acls: AclBinding) -> Decision:
    """What the rules decide."""
    return AclRules(AclIndex(acls)).decide(QUESTION.principal, QUESTION.host, QUESTION.operation, *QUESTION.resource)


@pytest.mark.parametrize(
    ("decision", "count", "words"),
    [
        (decided(), 0, "no rule covers topic:t"),
        (decided(acl(AclOperation.WRITE)), 1, "1 rule covers topic:t, but none allows this"),
        (decided(acl()), 1, "rule: allow User:alice read topic:t from any host"),
        (decided(acl(AclOperation.ALL)), 1, "rule: allow User:alice all topic:t from any host (all includes read)"),
        (decided(acl(is_denied=True)), 1, "rule: deny User:alice read topic:t from any host"),
    ],
)
def test_the_reason_of_a_decision(decision: Decision, count: int, words: str) -> None:
    assert why(QUESTION, decision, count) == words


@pytest.mark.parametrize(
    ("decision", "count", "words"),
    [
        (decided(), 0, "User:alice is in super.users, or allow.everyone.if.no.acl.found is true"),
        (decided(acl(AclOperation.WRITE)), 1, "User:alice is in super.users"),
        (decided(acl(is_denied=True)), 1, "User:alice is in super.users"),
        (decided(acl()), 1, None),
    ],
)
def test_settings_that_brokers_do_not_tell_may_allow_it(decision: Decision, count: int, words: str | None) -> None:
    assert unless(QUESTION, decision, count) == words


@pytest.mark.parametrize(
    ("decision", "allowed", "words"),
    [
        (decided(acl()), True, "ALLOWED"),
        (decided(acl(is_denied=True)), False, "DENIED"),
        (decided(acl(AclOperation.WRITE)), None, "NO ACL ALLOWS IT"),
        (decided(), None, "NO ACL ALLOWS IT"),
    ],
)
def test_without_a_rule_that_decides_it_depends_on_the_brokers(
    decision: Decision, allowed: bool | None, words: str
) -> None:
    """Brokers may have super users, or allow everyone, and do not tell."""
    assert (is_allowed(decision), verdict(decision)) == (allowed, words)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (acl(principal="User:bob"), "another principal"),
        (acl(host="10.0.0.2"), "another host"),
        (acl(AclOperation.WRITE), "write does not include read"),
        (acl(AclOperation.DESCRIBE, is_denied=True), "describe does not include read"),
        (acl(AclOperation.ALL), "it allows too"),
    ],
)
def test_the_reason_why_another_rule_does_not_decide(other: AclBinding, words: str) -> None:
    assert why_not(QUESTION, other, decided(acl())) == words


def test_a_deny_counts_before_an_allow() -> None:
    denied = decided(acl(is_denied=True))
    assert why_not(QUESTION, acl(AclOperation.ALL), denied) == "a deny counts before it"
    assert why_not(QUESTION, acl(AclOperation.ALL, is_denied=True), denied) == "it denies too"


def test_addresses_are_compared_as_addresses() -> None:
    question = QUESTION._replace(host="::1")
    assert why_not(question, acl(host="0:0:0:0:0:0:0:1"), decided(acl())) == "it allows too"
