"""`barnabas acl`, against a real cluster. Also tests acl_requests.py."""

from __future__ import annotations

import json

import pytest

from tests.barnabas.cli.conftest import Barnabas


@pytest.fixture(autouse=True)
def no_acls(barnabas: Barnabas, secured: str) -> None:
    """Begin without ACLs."""
    for resource in ("topic", "group", "cluster"):
        assert barnabas("acl", "delete", "--resource", resource, "--yes").code == 0


def test_acls_are_added_listed_and_deleted(barnabas: Barnabas) -> None:
    added = barnabas("acl", "add", "alice", "read,describe", "topic:orders")
    assert added.out == (
        "allow User:alice read topic:orders from any host\nallow User:alice describe topic:orders from any host\n"
    )
    assert barnabas("acl", "add", "User:bob", "ALL", "group:team-", "--prefixed").code == 0
    assert barnabas("acl", "add", "User:*", "cluster_action", "cluster", "--deny", "--host", "10.0.0.1").code == 0
    assert barnabas("acl", "list").rows == [
        ["allow", "User:alice", "read", "topic:orders", "literal", "*"],
        ["allow", "User:alice", "describe", "topic:orders", "literal", "*"],
        ["allow", "User:bob", "all", "group:team-", "prefixed", "*"],
        ["deny", "User:*", "cluster-action", "cluster", "literal", "10.0.0.1"],
    ]
    assert len(barnabas("acl", "list", "--principal", "alice").rows) == 2
    assert len(barnabas("acl", "list", "--covering", "group:team-red").rows) == 1
    assert barnabas("acl", "list", "--resource", "group:team-red").rows == []
    assert barnabas("acl", "delete", "--principal", "alice", "--operation", "read").out == "deleted 1 ACL\n"
    assert barnabas("acl", "delete", "--host", "10.0.0.1").out == "deleted 1 ACL\n"
    assert barnabas("acl", "delete", "--resource", "group").out == "deleted 1 ACL\n"
    assert barnabas("acl", "delete", "--resource", "group").out == "deleted 0 ACLs\n"
    assert [row[2] for row in barnabas("acl", "list").rows] == ["describe"]


def test_explain_names_the_rule_that_decides(barnabas: Barnabas) -> None:
    barnabas("acl", "add", "alice", "write", "topic:ord", "--prefixed")
    barnabas("acl", "add", "User:*", "all", "topic:orders", "--deny", "--host", "10.0.0.1")
    allowed = barnabas("acl", "explain", "alice", "describe", "topic:orders")
    assert allowed == (
        0,
        "User:alice describe topic:orders from 127.0.0.1: ALLOWED\n"
        "  rule: allow User:alice write topic:ord… from any host (write includes describe)\n"
        "The other rules that cover the resource:\n"
        "  deny User:* all topic:orders from 10.0.0.1: another host\n",
        "",
    )
    denied = barnabas("acl", "explain", "alice", "describe", "topic:orders", "--host", "10.0.0.1", "--json")
    assert denied.code == 1
    (row,) = json.loads(denied.out)
    assert (row["allowed"], row["rule"]) == (False, "deny User:* all topic:orders from 10.0.0.1")
    free = barnabas("acl", "explain", "bob", "write", "topic:x")
    assert free.code == 1
    assert free.out == (
        "User:bob write topic:x from 127.0.0.1: NO ACL ALLOWS IT\n"
        "  no rule covers topic:x\n"
        "  unless User:bob is in super.users, or allow.everyone.if.no.acl.found is true (brokers do not tell)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["delete"], "say which ACLs: --principal, --resource, --covering, --operation, --host"),
        (["list", "--resource", "topic:x", "--covering", "topic:x"], "give --resource or --covering, not both"),
        (["add", "alice", "raed", "topic:x"], "there is no operation raed; did you mean read?"),
        (
            ["add", "alice", "read,write", "group:x"],
            "nothing asks for write on a group; it can be read, delete, describe, describe-configs, "
            "alter-configs or all",
        ),
    ],
)
def test_a_mistake_is_one_line(barnabas: Barnabas, arguments: list[str], line: str) -> None:
    outcome = barnabas("acl", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.endswith(f"{line}\n")
    assert outcome.err.count("\n") == 1
