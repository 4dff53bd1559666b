"""StandardAuthorizer's rules, by example and against the naive model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.acls.index import AclIndex
from barnabas.security.acls.rules import CACHED_MAX, AclRules, Reason, canonical_host, parse_super_users
from barnabas.security.values import AclBinding, AclOperation, ResourceType
from tests.barnabas.security.acls import naive
from tests.barnabas.security.acls.naive import DENY, PREFIXED, acl

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
Op = AclOperation
HOST = "10.0.0.1"


def rules(*acls: AclBinding, default: bool = False) -> AclRules:
    return AclRules(AclIndex(acls), frozenset({"User:root"}), allows_by_default=default)


def is_allowed(given: AclRules, operation: Op, name: str = "t", principal: str = "User:a", host: str = HOST) -> bool:
    return given.decide(principal, host, operation, TOPIC, name).is_allowed


@given(naive.worlds, st.booleans(), st.data())
def test_every_decision_is_that_of_the_naive_model(world: list[AclBinding], default: bool, data: st.DataObject) -> None:
    ours = AclRules(AclIndex(world), allows_by_default=default)
    for _ in range(10):
        question = (
            data.draw(st.sampled_from(["User:a", "User:b", "Group:a", "User:z"])),
            data.draw(st.sampled_from([HOST, "10.0.0.2", "10.0.0.3"])),
            data.draw(st.sampled_from(naive.OPERATIONS[1:])),
            data.draw(st.sampled_from(naive.TYPES)),
            data.draw(naive.names),
        )
        expected = naive.allows(world, *question, default=default)
        decision = ours.decide(*question)
        assert decision.is_allowed == expected
        assert ours.decide(*question) is decision, "the second answer comes from the cache"
        if decision.acl is not None:
            assert (decision.acl.permission == naive.ALLOW) == expected
            assert naive.covers(decision.acl, question[3], question[4])


@given(naive.worlds, st.sampled_from(naive.OPERATIONS[1:]))
def test_a_right_to_any_topic_is_that_of_the_naive_model(world: list[AclBinding], operation: Op) -> None:
    ours = AclRules(AclIndex(world))
    decision = ours.decide_by_type("User:a", HOST, operation, TOPIC)
    assert decision.is_allowed == naive.allows_some(world, "User:a", HOST, operation)


def test_a_deny_comes_before_an_allow_whatever_covers_more_exactly() -> None:
    given = rules(acl("t", Op.READ), acl("*", Op.READ, DENY, principal="User:*"))
    decision = given.decide("User:a", HOST, Op.READ, TOPIC, "t")
    assert not decision.is_allowed
    assert decision.acl is not None
    assert decision.acl.resource_name == "*"


@pytest.mark.parametrize("operation", [Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.ALL])
def test_some_rights_include_describe(operation: Op) -> None:
    assert is_allowed(rules(acl("t", operation)), Op.DESCRIBE)


@pytest.mark.parametrize("operation", [Op.READ, Op.WRITE, Op.DELETE, Op.ALTER])
def test_a_denied_right_denies_no_describe(operation: Op) -> None:
    assert is_allowed(rules(acl("t", operation, DENY), acl("t", Op.DESCRIBE)), Op.DESCRIBE)
    assert not is_allowed(rules(acl("t", Op.ALL, DENY), acl("t", Op.DESCRIBE)), Op.DESCRIBE)


def test_alter_configs_includes_describe_configs_and_nothing_else() -> None:
    given = rules(acl("t", Op.ALTER_CONFIGS))
    assert is_allowed(given, Op.DESCRIBE_CONFIGS)
    assert not is_allowed(given, Op.DESCRIBE)


def test_super_users_may_do_what_is_denied_even_before_the_acls_arrive() -> None:
    given = rules(acl("*", Op.ALL, DENY, principal="User:*"))
    assert given.decide("User:root", HOST, Op.READ, TOPIC, "t").reason is Reason.SUPER_USER
    assert AclRules(None, frozenset({"User:root"})).decide("User:root", HOST, Op.READ, TOPIC, "t").is_allowed


def test_without_any_acl_for_a_resource_the_default_answers() -> None:
    assert is_allowed(rules(default=True), Op.READ)
    assert not is_allowed(rules(), Op.READ)
    covered = rules(acl("t", Op.READ, principal="User:b"), default=True)
    assert not is_allowed(covered, Op.READ)
    assert is_allowed(covered, Op.READ, "u")


def test_before_the_acls_arrive_everything_is_denied() -> None:
    given = AclRules(None, allows_by_default=True)
    decision = given.decide("User:a", HOST, Op.READ, TOPIC, "t")
    assert (decision.is_allowed, decision.reason) == (False, Reason.NOT_READY)
    assert given.decide_by_type("User:a", HOST, Op.READ, TOPIC).reason is Reason.NOT_READY
    assert is_allowed(given.with_acls(AclIndex()), Op.READ)


def test_principals_of_other_types_are_covered_by_the_wildcard_too() -> None:
    given = rules(acl("t", Op.READ, principal="User:*"))
    assert is_allowed(given, Op.READ, principal="Group:x")
    assert not is_allowed(rules(acl("t", Op.READ)), Op.READ, principal="Group:a")


@pytest.mark.parametrize(
    ("of_the_acl", "client"),
    [("::1", "::1"), ("0:0:0:0:0:0:0:1", "::1"), ("10.0.0.1", "::ffff:10.0.0.1"), ("FE80::1", "fe80::1%eth0")],
)
def test_an_address_has_many_spellings(of_the_acl: str, client: str) -> None:
    denying = rules(acl("t", Op.READ, DENY, host=of_the_acl), acl("t", Op.READ))
    assert not is_allowed(denying, Op.READ, host=client)
    assert is_allowed(denying, Op.READ, host="::2")
    assert canonical_host("not an address") == "not an address"


def test_a_wildcard_covers_names_that_begin_with_an_asterisk() -> None:
    assert not is_allowed(rules(acl("*", Op.READ, DENY), default=True), Op.READ, "*abc")
    assert not is_allowed(rules(acl("*", Op.READ, DENY), default=True), Op.READ, "*")


def test_a_prefix_that_is_an_asterisk_is_no_wildcard() -> None:
    given = rules(acl("*", Op.READ, pattern=PREFIXED))
    assert not is_allowed(given, Op.READ, "t")
    assert is_allowed(given, Op.READ, "*t")


def test_a_denied_prefix_covers_what_is_allowed_below_it() -> None:
    some = (acl("ab", Op.WRITE), acl("abc", Op.WRITE, pattern=PREFIXED))
    assert rules(*some).decide_by_type("User:a", HOST, Op.WRITE, TOPIC).is_allowed
    denied = rules(*some, acl("a", Op.WRITE, DENY, pattern=PREFIXED))
    assert not denied.decide_by_type("User:a", HOST, Op.WRITE, TOPIC).is_allowed
    wholly = rules(*some, acl("*", Op.ALL, DENY))
    decision = wholly.decide_by_type("User:a", HOST, Op.WRITE, TOPIC)
    assert (decision.is_allowed, decision.reason) == (False, Reason.ACL)


def test_the_memory_of_decisions_is_bounded() -> None:
    given = rules(acl("t", Op.READ))
    for n in range(CACHED_MAX + 10):
        given.decide("User:a", HOST, Op.READ, TOPIC, str(n))
    assert 0 < len(given._cache) <= CACHED_MAX
    given = rules()
    given.decide("User:a", HOST, Op.READ, GROUP, "x" * 10_000)
    assert not given._cache


def test_a_decision_is_worded_as_by_kafka() -> None:
    given = rules(acl("t", Op.READ, host=HOST))
    assert str(given.decide("User:a", HOST, Op.READ, TOPIC, "t")) == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=t, patternType=LITERAL, principal=User:a, "
        "host=10.0.0.1, operation=READ, permissionType=ALLOW))"
    )
    assert str(given.decide("User:root", HOST, Op.READ, TOPIC, "t")) == "SuperUser"
    assert str(given.decide("User:a", HOST, Op.READ, TOPIC, "u")) == "DefaultDeny"
    assert str(rules(default=True).decide("User:a", HOST, Op.READ, TOPIC, "u")) == "DefaultAllow"


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users("User:CN=a,O=b; User:c;;") == {"User:CN=a,O=b", "User:c"}
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="alice"):
        parse_super_users("User:a;alice")
