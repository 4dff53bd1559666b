"""`barnabas quota`, against a real cluster."""

from __future__ import annotations

import pytest

from tests.barnabas.cli.conftest import Barnabas


def quotas(barnabas: Barnabas, *options: str) -> list[list[str]]:
    """The rows of `barnabas quota list`."""
    return barnabas("quota", "list", *options).rows


def test_quotas_are_set_listed_and_deleted(barnabas: Barnabas, secured: str) -> None:
    both = barnabas("quota", "set", "--user", "alice", "producer_byte_rate=1000", "consumer_byte_rate=2e6")
    assert both == (0, "user alice: producer_byte_rate=1000, consumer_byte_rate=2000000\n", "")
    assert barnabas("quota", "set", "--user", "alice", "--client-id", "", "request_percentage=12.5").code == 0
    assert barnabas("quota", "set", "--ip", "", "connection_creation_rate=5").out == (
        "ip <default>: connection_creation_rate=5\n"
    )
    assert sorted(quotas(barnabas)) == [
        ["-", "-", "<default>", "connection_creation_rate", "5"],
        ["alice", "-", "-", "consumer_byte_rate", "2000000"],
        ["alice", "-", "-", "producer_byte_rate", "1000"],
        ["alice", "<default>", "-", "request_percentage", "12.5"],
    ]
    assert len(quotas(barnabas, "--user", "alice")) == 3
    assert len(quotas(barnabas, "--client-id", "")) == 1
    deleted = barnabas("quota", "delete", "--user", "alice")
    assert deleted.out == "user alice: deleted consumer_byte_rate, producer_byte_rate\n"
    assert barnabas("quota", "delete", "--user", "alice", "--client-id", "", "request_percentage").code == 0
    assert barnabas("quota", "delete", "--ip", "").code == 0
    assert quotas(barnabas) == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["set", "producer_byte_rate=1"], "say whose quota: --user, --client-id or --ip"),
        (["set", "--user", "a", "--ip", "10.0.0.1", "producer_byte_rate=1"], "--ip excludes --user and --client-id"),
        (["set", "--user", "a", "producer_byterate=1"], "no quota producer_byterate; did you mean producer_byte_rate?"),
        (["set", "--user", "a", "producer_byte_rate=many"], "producer_byte_rate=many: not a number"),
        (["set", "--ip", "10.0.0.1", "producer_byte_rate=1"], "(INVALID_REQUEST)"),
        (["delete", "--user", "nosuch"], "user nosuch has no quota"),
        (["delete", "--user", "nosuch", "producer_byte_rate"], "user nosuch has no quota producer_byte_rate"),
    ],
)
def test_a_mistake_is_one_line(barnabas: Barnabas, secured: str, arguments: list[str], line: str) -> None:
    outcome = barnabas("quota", *arguments)
    is_refused = arguments[0] == "delete" or "INVALID_REQUEST" in line
    assert (outcome.code, outcome.out) == (1 if is_refused else 2, "")
    assert outcome.err.endswith(f"{line}\n")
    assert outcome.err.count("\n") == 1
