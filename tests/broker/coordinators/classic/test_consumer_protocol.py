"""The embedded consumer protocol, against kafka-python's encoder, and cut at every byte."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from barnabas.broker.coordinators.classic.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    answer_version,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from barnabas.protocol.errors import MalformedMessageError

OWNED = {"t": frozenset({0, 2}), "u": frozenset({1})}


def subscription(version: int) -> bytes:
    encoded: bytes = ConsumerProtocolSubscription(
        version=version, topics=["t", "u"], user_data=b"x", owned_partitions=[("t", [0, 2]), ("u", [1])],
        generation_id=4, rack_id="r",
    ).encode()  # fmt: skip
    return encoded


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_of_every_version(version: int) -> None:
    data = subscription(version)
    assert version_of(data) == version
    assert read_subscription(data) == Subscription(
        frozenset({"t", "u"}), OWNED if version >= 1 else {}, "r" if version >= 3 else None
    )


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_of_every_version(version: int) -> None:
    assigned = [("t", [0, 2]), ("u", [1])]
    theirs: bytes = ConsumerProtocolAssignment(version=version, assigned_partitions=assigned, user_data=None).encode()
    assert write_assignment(OWNED, version) == theirs
    assert read_assignment(theirs) == ConsumerAssignment(OWNED)


def test_user_data_of_a_custom_assignor_is_passed_on() -> None:
    data: bytes = ConsumerProtocolAssignment(version=1, assigned_partitions=[], user_data=b"mine").encode()
    assert read_assignment(data) == ConsumerAssignment({}, b"mine")


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    data = b"\x00\x09" + subscription(3)[2:] + b"and what it adds"
    assert version_of(data) == 3
    assert read_subscription(data).rack_id == "r"


@pytest.mark.parametrize("version", range(4))
def test_what_is_cut_short_is_malformed(version: int) -> None:
    data = subscription(version)
    for size in range(len(data)):
        with pytest.raises(MalformedMessageError):
            read_subscription(data[:size])
    assignment = write_assignment(OWNED, version)
    for size in range(len(assignment)):
        with pytest.raises(MalformedMessageError):
            read_assignment(assignment[:size])


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x00\x00\xff\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x02t"])
def test_nonsense_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        read_subscription(data)
    with pytest.raises(MalformedMessageError):
        read_assignment(data)
    assert answer_version(data) == 0
