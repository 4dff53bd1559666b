"""AclIndex: finds the ACLs of a resource, and changes by making another index."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.acls.index import AclIndex, for_principal
from barnabas.security.values import AclBinding, AclOperation, ResourceType
from tests.barnabas.security.acls.naive import DENY, PREFIXED, acl, covers, names, worlds

TOPIC = ResourceType.TOPIC
READ, WRITE = AclOperation.READ, AclOperation.WRITE


def found(index: AclIndex, name: str) -> list[AclBinding]:
    return [acl for pattern in index.patterns(TOPIC, name) for acls in pattern.values() for acl in acls]


@given(worlds, names)
def test_exactly_the_acls_that_cover_a_resource_are_found(world: list[AclBinding], name: str) -> None:
    assert sorted(found(AclIndex(world), name)) == sorted(acl for acl in world if covers(acl, TOPIC, name))


@given(worlds, worlds, st.data())
def test_a_changed_index_equals_one_that_is_built_whole(
    old: list[AclBinding], added: list[AclBinding], data: st.DataObject
) -> None:
    removed = data.draw(st.lists(st.sampled_from(old)) if old else st.just([]))
    before = AclIndex(old)
    after = before.updated([acl.id for acl in removed], added)
    expected = {acl.id: acl for acl in old if acl not in removed} | {acl.id: acl for acl in added}
    assert {acl.id: acl for acl in after} == expected
    assert len(after) == len(expected)
    for name in ("", "a", "ab", "ba", "abab"):
        built = AclIndex(expected.values())
        # Why rules: two ids with one rule may come in any order.
        assert [acl.rule for acl in found(after, name)] == [acl.rule for acl in found(built, name)]
    assert sorted(before) == sorted(old), "the old index has changed"


def test_an_acl_is_found_by_its_id() -> None:
    one = acl("t", READ)
    index = AclIndex([one])
    assert index.get(one.id) is one
    assert index.get(b"other") is None
    assert index.updated([b"other"], ()).get(one.id) is one


def test_the_order_is_that_of_kafka() -> None:
    expected = [
        acl("abc", READ, DENY),
        acl("abc", WRITE),
        acl("abc", READ, pattern=PREFIXED),
        acl("ab", READ, pattern=PREFIXED),
        acl("a", READ, pattern=PREFIXED),
        acl("*", READ),
    ]
    assert found(AclIndex(reversed(expected)), "abc") == expected


def test_a_prefix_is_found_among_thousands_of_others_in_a_few_steps() -> None:
    world = [acl(f"topic-{n:05}", READ, pattern=PREFIXED) for n in range(5_000)]
    world += [acl(f"topic-{n:05}", READ) for n in range(5_000)]
    index = AclIndex([*world, acl("topic-", READ, pattern=PREFIXED)])
    assert len(found(index, "topic-00042")) == 3
    assert len(list(index.patterns(TOPIC, "topic-00042"))) == 3


def test_the_rules_of_everybody_are_mixed_with_a_principals_own_in_order() -> None:
    own = [acl("t", READ), acl("t", AclOperation.DESCRIBE)]
    everybody = [acl("t", WRITE, principal="User:*")]
    (pattern,) = AclIndex([*own, *everybody]).patterns(TOPIC, "t")
    assert for_principal(pattern, "User:a") == (own[0], everybody[0], own[1])
    assert for_principal(pattern, "User:x") == tuple(everybody)
    assert for_principal(pattern, "User:*") == tuple(everybody)


def test_the_acls_of_a_type_are_those_of_all_its_patterns() -> None:
    world = [acl("t", READ), acl("u", READ, pattern=PREFIXED), acl("v", READ, principal="User:*")]
    others = [acl("t", READ, kind=ResourceType.GROUP), acl("t", READ, principal="User:b")]
    assert sorted(AclIndex([*world, *others]).of_type(TOPIC, "User:a")) == sorted(world)
