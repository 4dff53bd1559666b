"""THE table of rights covers every API of both processes (`authorization/table.py`, `authorization/row.py`)."""

from __future__ import annotations

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization.row import ERRORS, Answer, Row, the_cluster
from barnabas.broker.authorization.table import BROKER_RIGHTS, CONTROLLER_RIGHTS, FORWARDED, NO_RIGHTS, by_key
from barnabas.controller.apis.table import TABLE as CONTROLLER_TABLE
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.security.values import CLUSTER_NAME, AclOperation, ResourceType

FORWARDABLE = {key for key, api in CONTROLLER_TABLE.items() if api.is_forwarded}
ROWS = [row for rights in (BROKER_RIGHTS, CONTROLLER_RIGHTS) for rows in rights.values() for row in rows]


def test_every_api_of_a_broker_has_rights_or_a_reason_for_none() -> None:
    assert [ApiKey(key).name for key in TABLE if key not in {*BROKER_RIGHTS, *NO_RIGHTS, *FORWARDED}] == []
    assert set(BROKER_RIGHTS) & set(NO_RIGHTS) == set()


def test_every_api_of_a_controller_has_rights_or_a_reason_for_none() -> None:
    assert [ApiKey(key).name for key in CONTROLLER_TABLE if key not in {*CONTROLLER_RIGHTS, *NO_RIGHTS}] == []


def test_what_a_broker_leaves_to_the_controller_is_what_it_forwards() -> None:
    nodes = {key for key in FORWARDED if key not in FORWARDABLE}
    assert nodes == set(CONTROLLER_TABLE) - FORWARDABLE - set(BROKER_RIGHTS) - set(NO_RIGHTS)
    assert all(key not in TABLE for key in nodes)


def test_every_refusal_has_an_error_and_nothing_else_has() -> None:
    for row in ROWS:
        assert (row.error != ErrorCode.NONE) == (row.answer in (Answer.REQUEST, Answer.ITEM)), row


def test_a_row_that_stands_for_others_is_before_them() -> None:
    for rights in (BROKER_RIGHTS, CONTROLLER_RIGHTS):
        for rows in rights.values():
            assert rows[-1].answer is not Answer.NEXT


def test_no_right_is_asked_twice() -> None:
    for rights in (BROKER_RIGHTS, CONTROLLER_RIGHTS):
        for rows in rights.values():
            asked = [(row.operation, row.resource, row.condition) for row in rows]
            assert len(set(asked)) == len(asked), rows[0].key


@pytest.mark.parametrize("resource", list(ResourceType)[2:])
def test_every_resource_type_has_an_error(resource: ResourceType) -> None:
    assert ERRORS[resource].name.endswith("AUTHORIZATION_FAILED")


def test_rows_keep_their_order() -> None:
    rows = [
        Row(key, "", operation, ResourceType.CLUSTER, Answer.NEXT)
        for key, operation in (
            (ApiKey.FETCH, AclOperation.READ),
            (ApiKey.PRODUCE, AclOperation.WRITE),
            (ApiKey.FETCH, AclOperation.ALTER),
        )
    ]
    assert by_key(rows) == {ApiKey.FETCH: (rows[0], rows[2]), ApiKey.PRODUCE: (rows[1],)}


def test_there_is_one_cluster() -> None:
    assert the_cluster(None) == CLUSTER_NAME  # type: ignore[arg-type]
