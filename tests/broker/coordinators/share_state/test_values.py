"""The key of a share partition's coordinator, and batches of messages."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.share_state.values import (
    SharePartitionKey,
    StateBatch,
    batches_of,
    is_coordinator_key,
)
from barnabas.protocol.messages.k85_write_share_group_state import StateBatch as WireBatch

KEY = SharePartitionKey("g", bytes(15) + b"\1", 3)


def test_the_key_of_the_coordinator_names_the_topic_by_id() -> None:
    assert KEY.coordinator_key == "g:AAAAAAAAAAAAAAAAAAAAAQ:3"


def test_batches_are_read_from_a_message() -> None:
    wire = [WireBatch(first_offset=1, last_offset=2, delivery_state=4, delivery_count=3)]
    assert batches_of(wire) == (StateBatch(1, 2, 4, 3),)


@pytest.mark.parametrize(
    ("text", "is_key"),
    [
        (KEY.coordinator_key, True),
        ("a:b:AAAAAAAAAAAAAAAAAAAAAQ:3", True),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:-1", True),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:2147483648", False),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:1_0", False),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:" + "9" * 100_000, False),
        ("g:AAAA:3", False),
        (" :AAAAAAAAAAAAAAAAAAAAAQ:3", False),
        ("AAAAAAAAAAAAAAAAAAAAAQ:3", False),
        ("g", False),
        ("", False),
    ],
)
def test_a_key_is_recognized(text: str, is_key: bool) -> None:
    assert is_coordinator_key(text) is is_key
