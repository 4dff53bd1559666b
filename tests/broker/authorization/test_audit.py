"""The authorizer's log and its counts."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.audit import LINES_MAX
from barnabas.common import logs
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from tests.broker.authorization.kit import admit, allowed, authorizer, is_admitted


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_a_refusal_is_logged_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    assert not is_admitted(authorizer([], default=False))
    assert lines(caplog) == [
        (
            "INFO",
            "Principal = User:alice is Denied operation = READ from host = 10.1.2.3 on resource = Group:LITERAL:g for "
            "request = Heartbeat with resourceRefCount = 1 based on rule DefaultDeny",
        )
    ]


def test_a_right_that_is_used_is_logged_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "barnabas.authorizer")
    assert is_admitted(authorizer([allowed(rights.HEARTBEAT, "g")], default=False))
    ((level, text),) = lines(caplog)
    assert level == "DEBUG"
    assert text == (
        "Principal = User:alice is Allowed operation = READ from host = 10.1.2.3 on resource = Group:LITERAL:g for "
        "request = Heartbeat with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl(resourceType=GROUP, "
        "resourceName=g, patternType=LITERAL, principal=User:alice, host=*, operation=READ, permissionType=ALLOW))"
    )


def test_the_level_of_the_log_can_change_while_a_connection_is_open(caplog: pytest.LogCaptureFixture) -> None:
    access = admit(authorizer([allowed(rights.HEARTBEAT, "g")], default=False)).access
    for level, count in (("DEBUG", 1), ("INFO", 1), ("DEBUG", 2), (None, 2)):
        logs.set_level("barnabas.authorizer", level)
        assert access.allows(rights.HEARTBEAT, "g")
        assert len(lines(caplog)) == count


def test_a_list_that_is_filtered_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    access = admit(authorizer([], default=False), MetadataRequest(topics=None), 12).access
    assert access.allowed(rights.METADATA_ALL_TOPICS, ["t", "u"]) == set()
    assert not access.allows(rights.LIST_ANY_GROUP)
    assert lines(caplog) == []


def test_a_request_that_names_very_much_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    by = authorizer([], default=False)
    access = admit(by, DescribeGroupsRequest(), 6).access
    assert access.allowed(rights.DESCRIBE_GROUP, [str(number) for number in range(3 * LINES_MAX)]) == set()
    assert len(lines(caplog)) == LINES_MAX
    assert lines(caplog)[-1] == (
        "INFO",
        "Principal = User:alice from host = 10.1.2.3: more than 999 resources in this DescribeGroups request, "
        "the rest is only counted",
    )
    assert by.audit.denied.count == 3 * LINES_MAX
    assert not is_admitted(by)
    assert len(lines(caplog)) == LINES_MAX + 1


def test_a_name_that_is_asked_often_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    access = admit(authorizer([], default=False), DescribeGroupsRequest(), 6).access
    access.allowed(rights.DESCRIBE_GROUP, ["g", "h", "g"])
    assert [text.partition(" with ")[2].partition(" based")[0] for _, text in lines(caplog)] == [
        "resourceRefCount = 2",
        "resourceRefCount = 1",
    ]


@pytest.mark.parametrize(("name", "shown"), [("a\nb", r"'a\nb'"), ("x" * 400, "x" * 300 + "...")])
def test_a_name_that_a_client_chose_cannot_forge_a_line(
    name: str, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    assert not is_admitted(authorizer([], default=False), HeartbeatRequest(group_id=name, member_id="m"))
    assert f"Group:LITERAL:{shown} for" in caplog.text


def test_names_of_resources_are_spelled_as_by_kafka(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    access = admit(authorizer([], default=False), MetadataRequest(topics=None), 12).access
    for row in (rights.END_TXN, rights.CREATE_TOKEN, rights.DESCRIBE_ACLS):
        access.allows(row)
    assert [text.partition("resource = ")[2].partition(":")[0] for _, text in lines(caplog)] == [
        "TransactionalId",
        "User",
        "Cluster",
    ]
