"""Acknowledgements of a request: which can be meant. (tests/broker/apis/test_share_fetch_apis.py: the wait.)"""

from __future__ import annotations

import pytest

from barnabas.broker.share.acknowledgements import are_valid, is_member_id_valid
from barnabas.broker.share.partition.values import Acknowledgement

A = Acknowledgement


@pytest.mark.parametrize(
    ("acknowledgements", "expected"),
    [
        ([], True),
        ([A(0, 9, [1])], True),
        ([A(0, 2, [0, 1, 3]), A(3, 3, [2])], True),
        ([A(0, 9, [])], False),
        ([A(9, 0, [1])], False),
        ([A(0, 2, [1, 1])], False),
        ([A(5, 9, [1]), A(0, 4, [1])], False),
        ([A(0, 9, [4])], False),
        ([A(0, 9, [-1])], False),
        ([A(0, 9, [5])], False),
    ],
)
def test_which_acknowledgements_can_be_meant(acknowledgements: list[Acknowledgement], expected: bool) -> None:
    assert are_valid(acknowledgements, 2, is_renew_ack=False) == expected


def test_renewal_has_its_version_and_its_flag() -> None:
    renewal = [A(0, 9, [4])]
    assert are_valid(renewal, 2, is_renew_ack=True)
    assert not are_valid(renewal, 1, is_renew_ack=True)


@pytest.mark.parametrize(("name", "expected"), [(None, False), ("", False), ("m" * 36, True), ("m" * 37, False)])
def test_names_of_members(name: str | None, expected: bool) -> None:
    assert is_member_id_valid(name) == expected
