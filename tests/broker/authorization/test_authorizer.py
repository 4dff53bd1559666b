"""The authorizer: who is admitted, what is logged and counted, and when ACLs take effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.authorizer import Authorizer, make_authorizer
from barnabas.broker.authorization.table import BROKER_RIGHTS, CONTROLLER_RIGHTS
from barnabas.broker.requests.answers import Close
from barnabas.common.clock import FakeClock
from barnabas.config.checks import STANDARD_AUTHORIZER
from barnabas.config.config import Config
from barnabas.metrics.meters import Gauge
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k19_create_topics import CreateTopicsRequest
from barnabas.security.values import AclBinding
from tests.broker.authorization.kit import (
    ALICE,
    HEARTBEAT,
    ROOT,
    acl,
    admit,
    allowed,
    authorizer,
    denied,
    is_admitted,
    lacking,
    make_request,
)

SMALL = {"node.id": "1", "controller.quorum.bootstrap.servers": "h:1"}


def test_a_request_gets_the_access_of_its_client() -> None:
    access = admit(authorizer()).access
    assert (access.principal, access.host, access.api_name) == ("User:alice", "10.1.2.3", "Heartbeat")


def test_acls_take_effect_when_they_are_taken() -> None:
    by = authorizer([], default=False)
    assert not is_admitted(by)
    given = allowed(rights.HEARTBEAT)
    by.take({given.id: given})
    assert is_admitted(by)
    assert by.generation == 1
    by.take({})
    assert not is_admitted(by)
    assert by.generation == 2


class Acls(dict[bytes, AclBinding]):
    """ACLs by id that call a function when they are read."""

    def __init__(self, acls: Iterable[AclBinding], when_read: Callable[[], object]) -> None:
        super().__init__({acl.id: acl for acl in acls})
        self.when_read = when_read

    def values(self) -> Any:
        self.when_read()
        return super().values()


def test_acls_that_could_not_be_taken_are_taken_again() -> None:
    by = authorizer([], default=False)
    acls = Acls([allowed(rights.HEARTBEAT)], lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        by.take(acls)
    acls.when_read = lambda: None
    by.take(acls)
    assert is_admitted(by)


def test_the_same_acls_change_nothing() -> None:
    by = authorizer(None)
    acls: dict[bytes, Any] = {}
    by.take(acls)
    rules = by.rules
    by.take(acls)
    assert by.rules is rules


def test_a_change_of_acls_leaves_the_others_as_they_are() -> None:
    by = authorizer(None, default=False)
    one, two, three = allowed(rights.HEARTBEAT), allowed(rights.DELETE_GROUP), denied(rights.HEARTBEAT)
    by.take({one.id: one, two.id: two})
    by.take({two.id: two, three.id: three})
    assert by.rules.acls is not None
    assert sorted(by.rules.acls) == sorted([two, three])


def test_a_request_keeps_the_rules_of_its_beginning() -> None:
    by, message = authorizer(), MetadataRequest(topics=None)
    request = admit(by, message, 12)
    taken = denied(rights.DELETE_GROUP)
    by.take({taken.id: taken})
    assert request.access.allows(rights.DELETE_GROUP, "g")
    assert not admit(by, message, 12).access.allows(rights.DELETE_GROUP, "g")


def test_a_connection_keeps_its_access_until_the_rules_or_its_principal_change() -> None:
    by, connection = authorizer(), SimpleNamespace(access=None)

    def access_of(principal: str = ALICE) -> Any:
        request: Any = make_request(HEARTBEAT, 4, principal=principal)
        request.connection = connection
        by.admit(TABLE[12], request)
        return request.access

    first = access_of()
    first.lines = 5
    assert access_of() is first
    assert first.lines == 0  # the log's limit is a request's
    assert access_of(ROOT).principal == ROOT
    second = access_of()
    taken = denied(rights.HEARTBEAT)
    by.take({taken.id: taken})
    with pytest.raises(ApiError):
        access_of()
    assert connection.access.rules is by.rules
    assert second.allows(rights.HEARTBEAT, "g")  # of a request that is still carried out


def test_before_the_acls_only_super_users_and_the_pushes_are_admitted() -> None:
    by = authorizer(None)
    refusal = by.admit(TABLE[12], make_request(HEARTBEAT, 4))
    assert isinstance(refusal, Close)
    assert by.admit(TABLE[12], make_request(HEARTBEAT, 4, principal=ROOT)) is None
    api_versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert by.admit(TABLE[18], make_request(api_versions, 4)) is None
    for key in (4, 5, 6):
        assert by.admit(TABLE[key], make_request(HEARTBEAT, 4)) is None


def test_an_api_without_rights_is_refused_to_all_but_super_users() -> None:
    by = authorizer()
    unknown: Any = SimpleNamespace(key=999, name="Unknown")
    with pytest.raises(ApiError) as refused:
        by.admit(unknown, make_request(HEARTBEAT, 4))
    assert refused.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert by.admit(unknown, make_request(HEARTBEAT, 4, principal=ROOT)) is None


def test_what_is_forwarded_is_left_to_the_controller() -> None:
    admit(authorizer([], default=False), CreateTopicsRequest(), 7)


def test_no_answer_of_older_rules_is_kept_for_newer_ones() -> None:
    """Metadata keeps answers by generation: one that tells of a hidden topic would be kept for long."""
    by = authorizer([allowed(rights.HEARTBEAT, "g")], default=False)
    asked: list[Any] = []
    by.take(Acls([], lambda: asked.append(admit(by, HEARTBEAT, 4).access)))
    assert asked[0].generation < by.generation
    renewed = asked[0].renewed()
    assert (renewed.generation, renewed.rules, renewed.principal) == (by.generation, by.rules, ALICE)
    assert renewed.renewed() is renewed


# -- configuration and metrics


def values(registry: Registry) -> dict[str, float]:
    found = {}
    for row, instruments in registry.collect():
        for labels, gauge in instruments:
            if row.type == "plugins":
                assert isinstance(gauge, Gauge)
                found[row.name] = gauge.read()
                assert "StandardAuthorizer" in labels
    return found


def made(is_controller: bool = False, **settings: str) -> tuple[Authorizer | None, Registry, FakeClock]:
    clock = FakeClock()
    registry = Registry(clock)
    config = Config.from_properties({**SMALL, **{name.replace("_", "."): v for name, v in settings.items()}}, "broker")
    return make_authorizer(config, registry, is_controller=is_controller), registry, clock


def test_without_the_setting_there_is_no_authorizer() -> None:
    by, registry, _ = made()
    assert by is None
    assert values(registry) == {}


def test_the_settings_of_kafkas_authorizer() -> None:
    by, _, _ = made(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:root;User:b")
    assert by is not None
    assert by.rules.super_users == {"User:root", "User:b"}
    by.take({})
    assert not is_admitted(by)
    assert is_admitted(by, principal="User:b")
    lenient, _, _ = made(authorizer_class_name=STANDARD_AUTHORIZER, allow_everyone_if_no_acl_found="true")
    assert lenient is not None
    lenient.take({})
    assert is_admitted(lenient)


def test_brokers_and_controllers_ask_for_different_rights() -> None:
    broker, _, _ = made(authorizer_class_name=STANDARD_AUTHORIZER)
    controller, _, _ = made(True, authorizer_class_name=STANDARD_AUTHORIZER)
    assert broker is not None
    assert controller is not None
    assert (set(broker._rows), set(controller._rows)) == (set(BROKER_RIGHTS), set(CONTROLLER_RIGHTS))


def test_decisions_and_acls_are_counted_under_kafkas_names() -> None:
    by, registry, clock = made(authorizer_class_name=STANDARD_AUTHORIZER)
    assert by is not None
    given = allowed(rights.HEARTBEAT, "g")
    by.take({given.id: given})
    before = values(registry)
    assert before["acls-total-count"] == 1
    for _ in range(30):
        is_admitted(by)
    is_admitted(by, HeartbeatRequest(group_id="h", member_id="m"))
    clock.advance_ms(30_000)
    after = values(registry)
    assert after["authorization-allowed-rate-per-minute"] > after["authorization-denied-rate-per-minute"] > 0
    assert after["authorization-request-rate-per-minute"] == pytest.approx(
        after["authorization-allowed-rate-per-minute"] + after["authorization-denied-rate-per-minute"]
    )
    assert {row.name for row in (catalogue.ACLS, catalogue.AUTHORIZATIONS)} <= set(after)


def test_an_acl_that_covers_a_resource_ends_the_default() -> None:
    by = authorizer([acl(rights.HEARTBEAT.operation, rights.HEARTBEAT.resource, "g", principal="User:bob")])
    assert not is_admitted(by)
    assert is_admitted(lacking())
