"""The broker's API table and its rows (`requests/api.py`, `apis/services.py`)."""

from __future__ import annotations

import dataclasses

import pytest

from barnabas.broker.apis.services import Services
from barnabas.broker.apis.table import TABLE
from barnabas.broker.requests.api import make_table, nodes_only, stable_versions
from barnabas.protocol.api_keys import ROWS
from barnabas.protocol.messages import request_class
from tests.broker.apis.config_rig import make_request


def test_rows_are_in_order_of_keys_under_kafkas_names() -> None:
    assert list(TABLE) == sorted(TABLE)
    assert {key: row.name for key, row in TABLE.items()} == {key: ROWS[key].name for key in TABLE}


@pytest.mark.parametrize("key", TABLE)
def test_served_versions_can_be_decoded(key: int) -> None:
    low, high = TABLE[key].versions
    message = request_class(key)
    assert message.MIN_VERSION <= low <= high <= message.MAX_VERSION
    assert TABLE[key].supports(low)
    assert not TABLE[key].supports(high + 1)


def test_a_key_has_one_row() -> None:
    row = TABLE[0]
    with pytest.raises(AssertionError, match="two rows"):
        make_table(row, row)
    with pytest.raises(AssertionError, match="empty version range"):
        make_table(dataclasses.replace(row, versions=(1, 0)))


def test_every_request_of_a_node_only_api_is() -> None:
    request = make_request(TABLE[12], request_class(12)())
    assert nodes_only(request)


def test_moved_keys_are_checked_in_every_purgatory() -> None:
    """What handlers call after an API has returned is the replica manager's."""
    checked: list[object] = []
    services = Services(**{field.name: None for field in dataclasses.fields(Services)})  # type: ignore[arg-type]
    services.replica_manager = type("Manager", (), {"complete_all_delayed": staticmethod(checked.append)})()  # type: ignore[assignment]
    services.complete_all_delayed(["key"])  # type: ignore[list-item]
    assert checked == [["key"]]


def test_unstable_versions_are_left_out() -> None:
    """Apache Kafka 4.3.1 has one on brokers: InitProducerId v6."""
    stable = stable_versions(TABLE)
    assert {key: stable[key].versions for key in TABLE if stable[key] is not TABLE[key]} == {22: (0, 5)}
    row = dataclasses.replace(TABLE[75], unstable_since=0)
    assert stable_versions(make_table(row)) == {}
