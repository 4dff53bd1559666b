"""Which limit applies: the order of ClientQuotaManagerTest.testQuotaConfigPrecedence and its neighbours."""

from __future__ import annotations

import pytest

from barnabas.broker.quotas.limits import PRODUCER_BYTE_RATE, QuotaTable, Share, address_limits
from barnabas.broker.quotas.rates import UNLIMITED
from barnabas.security.values import Limits, QuotaEntity

KEY = PRODUCER_BYTE_RATE


def table(*rows: tuple[dict[str, str | None], float]) -> QuotaTable:
    return QuotaTable({QuotaEntity.of(parts): {KEY: limit} for parts, limit in rows}, KEY)


def limit(of: QuotaTable, user: str, client_id: str) -> float:
    return of.limit_of(of.share_of(user, client_id))


EVERY_FORM = table(
    ({"user": None}, 1000),
    ({"client-id": None}, 2000),
    ({"user": None, "client-id": None}, 3000),
    ({"user": "A"}, 4000),
    ({"user": "A", "client-id": "1"}, 5000),
    ({"user": "A", "client-id": None}, 6000),
    ({"user": "B"}, 7000),
    ({"user": "B", "client-id": "1"}, 8000),
    ({"user": "C"}, 10000),
    ({"user": None, "client-id": "1"}, 9000),
)


@pytest.mark.parametrize(
    ("user", "client_id", "expected", "share"),
    [
        ("A", "1", 5000, Share("A", "1")),
        ("A", "2", 6000, Share("A", "2")),
        ("B", "1", 8000, Share("B", "1")),
        ("B", "2", 7000, Share("B", "")),
        ("C", "1", 10000, Share("C", "")),
        ("D", "1", 9000, Share("D", "1")),
        ("D", "2", 3000, Share("D", "2")),
    ],
)
def test_the_most_specific_limit_applies(user: str, client_id: str, expected: float, share: Share) -> None:
    assert EVERY_FORM.share_of(user, client_id) == share
    assert limit(EVERY_FORM, user, client_id) == expected


def test_any_user_comes_before_client_ids() -> None:
    mixed = table(({"user": None}, 1), ({"client-id": "x"}, 2))
    assert limit(mixed, "A", "x") == 1
    assert mixed.share_of("A", "x") == Share("A", "")
    others = table(({"user": "A"}, 1), ({"client-id": "x"}, 2), ({"client-id": None}, 3))
    assert (limit(others, "B", "x"), limit(others, "B", "y")) == (2, 3)
    assert others.share_of("B", "x") == Share("", "x")


def test_one_form_of_limits_measures_everybody_in_that_form() -> None:
    assert table(({"client-id": "x"}, 1)).share_of("A", "y") == Share("", "y")
    assert table(({"user": "A"}, 1)).share_of("B", "y") == Share("B", "")
    assert table(({"user": "A", "client-id": "x"}, 1)).share_of("B", "y") == Share("B", "y")
    assert limit(table(({"user": "A"}, 1)), "B", "y") == UNLIMITED


def test_a_client_that_is_called_default_is_not_the_default() -> None:
    named = table(({"client-id": "<default>"}, 1))
    assert (limit(named, "A", "<default>"), limit(named, "A", "other")) == (1, UNLIMITED)


def test_a_client_without_a_name_has_no_limit_of_client_ids() -> None:
    assert limit(table(({"client-id": None}, 1)), "A", "") == UNLIMITED


def test_tables_hold_one_kind_and_no_addresses() -> None:
    quotas: dict[QuotaEntity, Limits] = {
        QuotaEntity.of({"user": "A"}): {"consumer_byte_rate": 5},
        QuotaEntity.of({"ip": "10.0.0.1"}): {"connection_creation_rate": 3},
        QuotaEntity.of({"ip": None}): {"connection_creation_rate": 9},
    }
    assert not QuotaTable(quotas, KEY)
    assert QuotaTable(quotas, "consumer_byte_rate")
    assert address_limits(quotas) == {"10.0.0.1": 3, None: 9}
