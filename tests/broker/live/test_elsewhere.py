"""The reasons why requests wait for a coordinator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.live import elsewhere
from barnabas.broker.live.elsewhere import Elsewhere
from barnabas.protocol.messages.k08_offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.k11_join_group import JoinGroupRequest
from barnabas.protocol.messages.k14_sync_group import SyncGroupRequest
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.k27_write_txn_markers import WriteTxnMarkersRequest
from tests.broker.coordinators.group_rig import GroupShardRig

COMMITTED = "for its records in __consumer_offsets-7 to be on all in-sync replicas"
IN_STATE = "for its records in __transaction_state-9 to be on all in-sync replicas"


@pytest.fixture
def rig() -> GroupShardRig:
    return GroupShardRig().make_stable("m1", "m2")


@pytest.fixture
def coordinators(rig: GroupShardRig) -> Elsewhere:
    def look_at(group_id: str) -> tuple[Any, int, int]:
        return (rig.group if group_id == "g" else None), rig.now_ms, 3000

    groups: Any = SimpleNamespace(partition_for=lambda _id: 7, look_at=look_at)
    transactions: Any = SimpleNamespace(partition_for=lambda _id: 9)
    return Elsewhere(groups, transactions)


@pytest.mark.parametrize(
    ("api", "message", "expected"),
    [
        ("OffsetCommit", OffsetCommitRequest(group_id="g"), COMMITTED),
        ("JoinGroup", JoinGroupRequest(group_id="of a consumer group"), COMMITTED),
        ("SyncGroup", SyncGroupRequest(group_id="of a consumer group"), COMMITTED),
        ("InitProducerId", InitProducerIdRequest(transactional_id="x"), IN_STATE),
        (
            "InitProducerId",
            InitProducerIdRequest(transactional_id=None),
            "for a block of producer ids from the controller",
        ),
        ("AddPartitionsToTxn", AddPartitionsToTxnRequest(v3_and_below_transactional_id="x"), IN_STATE),
        (
            "AddPartitionsToTxn",
            AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(transactional_id="x")]),
            IN_STATE,
        ),
        ("WriteTxnMarkers", WriteTxnMarkersRequest(), "for the markers of a transaction to be on all in-sync replicas"),
    ],
)
def test_each_api_has_its_reason(coordinators: Elsewhere, api: str, message: Any, expected: str) -> None:
    assert [reason["text"] for reason in coordinators.explain(api, message)] == [expected]


def test_members_wait_for_their_group(coordinators: Elsewhere, rig: GroupShardRig) -> None:
    rig.join("again", "m1")
    (reason,) = coordinators.explain("JoinGroup", JoinGroupRequest(group_id="g"))
    assert (reason["kind"], reason["members"]) == ("members", ["m2"])
    rig.join("too", "m2")
    (reason,) = coordinators.explain("SyncGroup", SyncGroupRequest(group_id="g"))
    assert reason["kind"] == "assignment"


def test_every_name_is_that_of_an_api() -> None:
    assert elsewhere._BY_API.keys() <= {api.name for api in TABLE.values()}


def test_other_apis_have_no_reason(coordinators: Elsewhere) -> None:
    assert coordinators.explain("Heartbeat", None) == []
