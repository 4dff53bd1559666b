"""ACLs as people write them."""

from __future__ import annotations

import pytest

from barnabas.cli.errors import UserError
from barnabas.cli.security.acl_words import (
    OPERATIONS,
    RESOURCE_TYPES,
    operation_word,
    parse_acl_line,
    parse_operation,
    parse_operations,
    parse_resource,
    parse_user,
    resource_word,
)
from barnabas.security.values import AclOperation, PatternType, PermissionType, ResourceType


def test_a_name_without_a_type_is_a_user() -> None:
    assert parse_user("alice") == "User:alice"
    assert parse_user("Group:x:y") == "Group:x:y"


@pytest.mark.parametrize("text", ["idempotent-write", "IDEMPOTENT_WRITE", "Idempotent_Write"])
def test_operations_are_found_in_any_spelling(text: str) -> None:
    assert parse_operation(text) is AclOperation.IDEMPOTENT_WRITE


def test_every_operation_and_resource_type_has_a_word_that_is_understood() -> None:
    assert [parse_operation(operation_word(each)) for each in OPERATIONS.values()] == list(OPERATIONS.values())
    assert len(OPERATIONS) == 14
    for kind in RESOURCE_TYPES.values():
        name = "kafka-cluster" if kind is ResourceType.CLUSTER else "a:b"
        assert parse_resource(resource_word(kind, name)) == (kind, name)


def test_a_list_of_operations() -> None:
    assert parse_operations("read,write") == [AclOperation.READ, AclOperation.WRITE]


def test_a_prefix_is_marked() -> None:
    assert resource_word(ResourceType.TOPIC, "a", PatternType.PREFIXED) == "topic:a…"


def test_the_cluster_has_no_name() -> None:
    assert parse_resource("cluster") == parse_resource("kafka-cluster") == (ResourceType.CLUSTER, "kafka-cluster")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topic", "'topic' has no name: write TYPE:NAME"),
        ("topic:", "has no name"),
        ("cluster:other", "there is one cluster"),
        ("topics:a", "there is no resource type topics; did you mean topic?"),
        ("zzz:a", "it can be topic, group"),
    ],
)
def test_another_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words.replace("?", r"\?")):
        parse_resource(text)


def test_a_line_has_the_arguments_of_the_command() -> None:
    first, second = parse_acl_line("alice read,write topic:team- --prefixed --deny --host=10.0.0.1")
    assert (first.principal, first.resource_name, first.host) == ("User:alice", "team-", "10.0.0.1")
    assert (first.pattern_type, first.permission) == (PatternType.PREFIXED, PermissionType.DENY)
    assert (first.operation, second.operation) == (AclOperation.READ, AclOperation.WRITE)
    (plain,) = parse_acl_line("User:* describe cluster")
    assert (plain.host, plain.pattern_type, plain.permission) == ("*", PatternType.LITERAL, PermissionType.ALLOW)


@pytest.mark.parametrize("line", ["", "alice read", "alice read topic:a b", "alice read topic:a --prefix"])
def test_a_line_that_is_no_acl(line: str) -> None:
    with pytest.raises(UserError, match="is no ACL: write PRINCIPAL OPERATION RESOURCE"):
        parse_acl_line(line)
