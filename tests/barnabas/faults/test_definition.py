"""Definitions of faults: checks, JSON and Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.faults import Fault, FaultError, blackhole_client, delay_on, disconnect_on, inject_error
from barnabas.faults.definition import ACTIONS, CHECKS
from barnabas.protocol.errors import ErrorCode

GOOD: list[dict[str, Any]] = [
    {"api": "Produce", "topic": "orders", "partition": 1, "error": "NOT_LEADER_OR_FOLLOWER", "times": 3},
    {"api": [0, "Fetch"], "error": "KAFKA_STORAGE_ERROR", "probability": 0.5, "seed": 7},
    {"api": "offset_commit", "group": "g-*", "error": "rebalance_in_progress", "on_call": 2},
    {"delay_ms": 5, "at": "request", "holds_handler": True, "sender": "any"},
    {"disconnect": True, "client_id": "x"},
    {"blackhole": True, "connection": "127.0.0.1:*", "listener": "PLAINTEXT", "principal": "User:*"},
    {"corrupt": True, "topic": "t", "after_ms": 5, "for_ms": 10},
    {"throttle_ms": 1000},
    {"api_versions": "2.8"},
    {"node": 1, "disk_delay_ms": 50, "operations": ["read", "fsync"], "path": "*/t-0/*"},
    {"node": 1, "disk_error": "EIO", "operations": "write"},
    {"node": 1, "disk_full": True},
    {"node": 1, "cut": 2, "direction": "to", "mode": "refuse"},
    {"node": 1, "cut": "controller"},
    {"node": 1, "clock_skew_ms": -3_600_000},
]


@pytest.mark.parametrize("values", GOOD, ids=str)
def test_a_fault_is_the_same_in_python_and_json(values: dict[str, Any]) -> None:
    fault = Fault.parse(values)
    assert fault == Fault(**values)
    assert Fault.parse(fault.to_json()) == fault
    assert fault.action in values


def test_every_effect_is_in_the_list_above() -> None:
    assert {Fault.parse(values).action for values in GOOD} == ACTIONS.keys()
    assert {key for values in GOOD for key in values} == CHECKS.keys()


def test_every_key_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "faults.md").read_text()
    assert [key for key in CHECKS if f"`{key}" not in text] == []


def test_names_are_kafkas_in_any_case() -> None:
    fault = Fault(api=["produce", "OFFSET_COMMIT", 0], error="request_timed_out")
    assert (fault.api, fault.error) == (("Produce", "OffsetCommit"), "REQUEST_TIMED_OUT")
    assert Fault(error=ErrorCode.INVALID_RECORD).error == "INVALID_RECORD"
    assert str(fault) == "api=Produce,OffsetCommit error=REQUEST_TIMED_OUT"


def test_functions_with_apache_kafkas_names() -> None:
    assert inject_error("EndTxn", "INVALID_TXN_STATE").once() == Fault(api="EndTxn", error="INVALID_TXN_STATE", times=1)
    assert disconnect_on("EndTxn") == Fault(api="EndTxn", disconnect=True)
    assert delay_on("Fetch", 5, topic="t") == Fault(api="Fetch", topic="t", delay_ms=5)
    assert blackhole_client("app-*") == Fault(client_id="app-*", blackhole=True)
    assert Fault.parse({"error": "INVALID_RECORD", "once": True}).times == 1


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([], "a fault must be an object"),
        ({}, "a fault has exactly one effect, this one has none"),
        ({"error": "INVALID_RECORD", "delay_ms": 5}, "this one has error and delay_ms"),
        ({"colour": "red"}, "unknown key 'colour'; the keys of a fault are api, node, topic"),
        ({"error": "NO_SUCH"}, "there is no error 'NO_SUCH'"),
        ({"error": "NONE"}, "NONE is not an error"),
        ({"error": None}, "error has no value"),
        ({"api": "Prodce", "blackhole": True}, "there is no API 'Prodce'"),
        ({"api": 999, "blackhole": True}, "there is no API with the key 999"),
        ({"api": [], "blackhole": True}, "must name at least one API"),
        ({"delay_ms": "5"}, "delay_ms must be a whole number"),
        ({"delay_ms": True}, "delay_ms must be a whole number"),
        ({"delay_ms": 0}, "delay_ms must be between 1 and"),
        ({"disconnect": False}, "disconnect can only be true"),
        ({"delay_ms": 1, "at": "noon"}, "at must be one of request, response"),
        ({"delay_ms": 1, "at": "response", "holds_handler": True}, "holds_handler needs at=request"),
        ({"delay_ms": 1, "holds_handler": 1}, "holds_handler must be true or false"),
        ({"error": "INVALID_RECORD", "at": "request"}, "at has no meaning with error"),
        ({"cut": 1, "topic": "t"}, "topic has no meaning with cut"),
        ({"cut": "everything"}, "cut must be a whole number"),
        ({"clock_skew_ms": 5, "times": 1}, "times has no meaning with clock_skew_ms"),
        ({"probability": 2, "blackhole": True}, "probability must be a number between 0 and 1"),
        ({"seed": 2, "blackhole": True}, "seed has no meaning without probability"),
        ({"times": 0, "blackhole": True}, "times must be between 1"),
        ({"api_versions": "1.9"}, "must be a release of Kafka from 0.11 to"),
        ({"disk_error": "EVERYTHING"}, "must be the name of an error of the operating system"),
        ({"disk_delay_ms": 5, "operations": ["seek"]}, "operations must be one of read, write"),
        ({"topic": "", "blackhole": True}, "topic must be a text"),
        ({"api": "Heartbeat", "topic": "t", "blackhole": True}, "requests of Heartbeat name no topics"),
        ({"api": "Metadata", "partition": 1, "blackhole": True}, "requests of Metadata name no partitions"),
    ],
    ids=str,
)
def test_an_invalid_fault_is_refused_in_one_line(values: Any, complaint: str) -> None:
    with pytest.raises(FaultError) as refused:
        Fault.parse(values)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)
