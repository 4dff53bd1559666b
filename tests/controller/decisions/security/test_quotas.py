"""AlterClientQuotas, with Kafka's errors."""

from __future__ import annotations

import pytest

from barnabas.controller.decisions.security.quotas import alter_client_quotas, named_hosts
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k49_alter_client_quotas as wire
from barnabas.security.values import QuotaEntity
from tests.controller.rig import Rig

RATE = "producer_byte_rate"
ALICE = {"user": "alice"}
Parts = dict[str, str | None]


def entry(parts: Parts, *ops: tuple[str, float | None]) -> wire.RequestEntryData:
    return wire.RequestEntryData(
        entity=[wire.EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()],
        ops=[wire.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def alter(rig: Rig, *entries: wire.RequestEntryData, validate_only: bool = False) -> list[tuple[int, str | None]]:
    request = wire.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = rig.decide(lambda view: alter_client_quotas(view, request, {"10.0.0.1"}.__contains__))
    return [(result.error_code, result.error_message) for result in response.entries]


def test_limits_are_set_changed_and_removed() -> None:
    rig = Rig()
    everybody: Parts = {"user": None, "client-id": "c"}
    assert (
        alter(rig, entry(ALICE, (RATE, 1024.0), ("request_percentage", 0.5)), entry(everybody, (RATE, 1.0)))
        == [(0, None)] * 2
    )
    assert alter(rig, entry(ALICE, (RATE, 2048.0), ("request_percentage", None), ("consumer_byte_rate", None))) == [
        (0, None)
    ]
    expected = {QuotaEntity.of(ALICE): {RATE: 2048.0}, QuotaEntity.of(everybody): {RATE: 1.0}}
    assert rig.restart().image.security.quotas == expected
    alter(rig, entry(ALICE, (RATE, None)))
    assert list(rig.image.security.quotas) == [QuotaEntity.of(everybody)]


def test_what_does_not_change_is_not_written() -> None:
    rig = Rig()
    alter(rig, entry(ALICE, (RATE, 1024.0)))
    offset = rig.image.offset
    assert alter(rig, entry(ALICE, (RATE, 1024.0))) == [(0, None)]
    assert alter(rig, entry(ALICE, (RATE, 1.0)), validate_only=True) == [(0, None)]
    assert rig.image.offset == offset


@pytest.mark.parametrize(
    ("parts", "op", "text"),
    [
        ({}, (RATE, 1.0), "Invalid empty client quota entity"),
        ({"group": "g"}, (RATE, 1.0), "Unhandled client quota entity type: group"),
        ({"user": ""}, (RATE, 1.0), "Empty user not supported"),
        (
            {"ip": "10.0.0.1", "user": "u"},
            ("connection_creation_rate", 1.0),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            {"ip": "no.such.host"},
            ("connection_creation_rate", 1.0),
            "no.such.host is not a valid IP or resolvable host.",
        ),
        ({"ip": "10.0.0.1"}, (RATE, 1.0), "Invalid configuration key producer_byte_rate"),
        (ALICE, ("connection_creation_rate", 1.0), "Invalid configuration key connection_creation_rate"),
        (ALICE, (RATE, -1.0), "Quota producer_byte_rate must be greater than 0"),
        (ALICE, (RATE, float("nan")), "Quota producer_byte_rate must be greater than 0"),
        (ALICE, (RATE, 1.5), "producer_byte_rate cannot be a fractional value."),
        (ALICE, (RATE, 1e19), "Proposed value for producer_byte_rate is too large for a LONG."),
        (
            {"ip": None},
            ("connection_creation_rate", 3e9),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_an_invalid_entry_fails_alone(parts: Parts, op: tuple[str, float], text: str) -> None:
    rig = Rig()
    fine = {"client-id": "fine"}
    assert alter(rig, entry(parts, op), entry(fine, (RATE, 1.0))) == [(ErrorCode.INVALID_REQUEST, text), (0, None)]
    assert list(rig.image.security.quotas) == [QuotaEntity.of(fine)]


def test_an_entity_and_a_key_may_be_named_once() -> None:
    rig = Rig()
    text = "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert alter(rig, entry(ALICE, (RATE, 1.0), (RATE, 2.0))) == [(ErrorCode.INVALID_REQUEST, text)]
    assert rig.image.security.quotas == {}
    # Kafka keeps what the first entry said, and reports the second.
    assert alter(rig, entry(ALICE, (RATE, 1.0)), entry(ALICE, (RATE, 2.0))) == [(ErrorCode.INVALID_REQUEST, text)]
    assert rig.image.security.quotas == {QuotaEntity.of(ALICE): {RATE: 1.0}}


def test_the_names_of_hosts_are_known_before_the_decision() -> None:
    entries = [entry({"ip": "10.0.0.1"}), entry({"ip": None}), entry({"user": "not.a.host"})]
    assert named_hosts(wire.AlterClientQuotasRequest(entries=entries)) == {"10.0.0.1"}
