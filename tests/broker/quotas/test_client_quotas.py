"""What requests are charged. Also covers `quotas/throttle.py`."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization.access import Access
from barnabas.broker.authorization.audit import Audit
from barnabas.broker.quotas.client_quotas import ClientQuotas, is_exempt
from barnabas.broker.quotas.limits import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from barnabas.broker.quotas.rates import Window
from barnabas.broker.quotas.sensors import EXPIRY_MS
from barnabas.broker.quotas.throttle import EXEMPT, UNTHROTTLED
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.common.clock import NS_PER_MS, FakeClock
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k00_produce import ProduceRequest
from barnabas.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.security.acls.index import AclIndex
from barnabas.security.acls.rules import AclRules
from barnabas.security.values import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    QuotaEntity,
    ResourceType,
)

ALICE = QuotaEntity.of({"user": "alice"})


def cluster_action(permission: PermissionType) -> AclBinding:
    """An ACL that says whether alice is a node."""
    cluster = (ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
    return AclBinding(b"id", *cluster, "User:alice", "*", AclOperation.CLUSTER_ACTION, permission)


class QuotaRig:
    def __init__(self, **limits: float) -> None:
        self.clock = FakeClock()
        self.quotas = ClientQuotas(Window(11, 1000), self.clock)
        self.set(**limits)

    def set(self, **limits: float) -> None:
        self.quotas.update({ALICE: limits} if limits else {})

    def request(
        self, message: Any, version: int = 12, *, took_ms: int = 0, size: int = 0, is_for_clients: bool = True
    ) -> Request:
        header = RequestHeader(message.API_KEY, version, 7, "app")
        context = RequestContext(
            "L", "SASL_SSL", "127.0.0.1", 5, "connection", "User:alice", is_for_clients=is_for_clients
        )
        request = Request.for_message(header, message, context)
        request.api = TABLE[message.API_KEY]
        request.size_bytes = size
        request.dequeued_ns = self.clock.monotonic_ns()
        self.clock.advance_ms(took_ms)
        return request

    def used(self, manager: Any) -> float:
        (_, numbers, _) = manager.numbers()[0]
        return float(numbers[0])


def test_without_limits_there_are_no_managers() -> None:
    rig = QuotaRig()
    quotas = rig.quotas
    assert (quotas.produce, quotas.fetch, quotas.request, quotas.is_active) == (None, None, None, False)
    request = rig.request(ProduceRequest(), size=10**9)
    assert quotas.charge_produce(request, is_silent=False) is UNTHROTTLED
    assert quotas.charge_produce(request, is_silent=True) is EXEMPT
    assert quotas.charge_fetch(request, 10**9) is UNTHROTTLED
    assert quotas.charge(request) is UNTHROTTLED
    assert quotas.fetch_bytes_max(request, 123) == 123
    quotas.add_network_time(request, 10**9)
    quotas.expire()


def test_limits_come_and_go() -> None:
    rig = QuotaRig(**{PRODUCER_BYTE_RATE: 5})
    produce = rig.quotas.produce
    assert rig.quotas.is_active
    assert rig.quotas.fetch is None
    rig.set(**{PRODUCER_BYTE_RATE: 6, CONSUMER_BYTE_RATE: 7, REQUEST_PERCENTAGE: 8})
    assert rig.quotas.produce is produce, "its rates go on"
    request = rig.quotas.request
    rig.set(**{REQUEST_PERCENTAGE: 9})
    assert (rig.quotas.produce, rig.quotas.request) == (None, request)
    rig.set()
    assert not rig.quotas.is_active


def test_changed_limits_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rig = QuotaRig(**{PRODUCER_BYTE_RATE: 5})
    rig.set(**{PRODUCER_BYTE_RATE: 5})
    rig.set(**{PRODUCER_BYTE_RATE: 6})
    rig.set()
    assert [record.getMessage() for record in caplog.records] == [
        "client quotas: producer_byte_rate has 1 limits now",
        "client quotas: producer_byte_rate has 1 limits now",
        "client quotas: producer_byte_rate has 0 limits now",
    ]


def test_a_produce_is_charged_its_size() -> None:
    rig = QuotaRig(**{PRODUCER_BYTE_RATE: 1000})
    throttle = rig.quotas.charge_produce(rig.request(ProduceRequest(), size=15_000), is_silent=True)
    assert (throttle.ms, throttle.quota) == (5000, PRODUCER_BYTE_RATE)
    assert rig.quotas.produce is not None
    assert rig.quotas.produce.numbers()[0][2] == 5000.0


def test_the_longer_wait_counts() -> None:
    rig = QuotaRig(**{PRODUCER_BYTE_RATE: 1000, REQUEST_PERCENTAGE: 1})
    request = rig.request(ProduceRequest(), size=10_100, took_ms=150)
    throttle = rig.quotas.charge_produce(request, is_silent=False)
    assert (throttle.ms, throttle.quota) == (1000, REQUEST_PERCENTAGE)
    rig.clock.advance_ms(60_000)
    throttle = rig.quotas.charge_produce(rig.request(ProduceRequest(), size=15_000, took_ms=1), is_silent=False)
    assert (throttle.ms, throttle.quota) == (5000, PRODUCER_BYTE_RATE)


def test_a_throttled_fetch_is_not_charged_its_bytes() -> None:
    rig = QuotaRig(**{CONSUMER_BYTE_RATE: 1000})
    assert rig.quotas.fetch_bytes_max(rig.request(FetchRequest()), 10**9) == 10_000
    assert rig.quotas.charge_fetch(rig.request(FetchRequest()), 10_000) is UNTHROTTLED
    throttle = rig.quotas.charge_fetch(rig.request(FetchRequest()), 5_000)
    assert (throttle.ms, throttle.quota) == (5000, CONSUMER_BYTE_RATE)
    assert rig.used(rig.quotas.fetch) == 1000


def test_a_fetch_that_thread_time_throttles_gives_its_bytes_back() -> None:
    rig = QuotaRig(**{CONSUMER_BYTE_RATE: 1000, REQUEST_PERCENTAGE: 1})
    throttle = rig.quotas.charge_fetch(rig.request(FetchRequest(), took_ms=200), 5_000)
    assert throttle.quota == REQUEST_PERCENTAGE
    assert rig.used(rig.quotas.fetch) == 0


def test_other_requests_are_charged_their_thread_time() -> None:
    rig = QuotaRig(**{REQUEST_PERCENTAGE: 2})
    request = rig.request(MetadataRequest(), took_ms=100)
    assert rig.quotas.charge(request) is UNTHROTTLED
    assert rig.used(rig.quotas.request) == 1
    parked = rig.request(MetadataRequest(), took_ms=100)
    parked.api_local_done_ns = rig.clock.monotonic_ns() - 50 * NS_PER_MS
    rig.quotas.charge(parked)
    assert rig.used(rig.quotas.request) == pytest.approx(1.5, rel=0.05)


def test_network_time_counts_for_the_next_request() -> None:
    rig = QuotaRig(**{REQUEST_PERCENTAGE: 1})
    request = rig.request(MetadataRequest())
    request.throttle = rig.quotas.charge(request)
    rig.quotas.add_network_time(request, 120 * NS_PER_MS)
    assert rig.quotas.charge(rig.request(MetadataRequest())).ms == 1000


def test_nodes_are_exempt() -> None:
    rig = QuotaRig(**{REQUEST_PERCENTAGE: 1})
    follower = FetchRequest(replica_id=2, replica_state=ReplicaState(replica_id=2))
    request = rig.request(follower, took_ms=600, is_for_clients=False)
    assert is_exempt(request)
    request.throttle = rig.quotas.charge(request)
    assert request.throttle is EXEMPT
    rig.quotas.add_network_time(request, 600 * NS_PER_MS)
    assert rig.quotas.request is not None
    assert rig.quotas.request.exempt_time() == pytest.approx(4, rel=0.05)
    assert rig.quotas.request.numbers() == []
    assert not is_exempt(rig.request(follower)), "a client that claims to be a follower"
    assert not is_exempt(rig.request(MetadataRequest(), is_for_clients=False))
    with_access = rig.request(follower)
    judge: Any = None
    for rules, expected in (
        (AclRules(AclIndex(()), frozenset({"User:alice"})), True),
        (AclRules(AclIndex([cluster_action(PermissionType.ALLOW)])), True),
        (AclRules(AclIndex([cluster_action(PermissionType.DENY)])), False),
        (AclRules(AclIndex(())), False),
        (AclRules(AclIndex(()), allows_by_default=True), False),  # everybody's right says nothing
        (AclRules(None), False),  # nor does its absence
    ):
        with_access.access = Access(judge, Audit(), rules, "User:alice", "127.0.0.1", "Fetch", 0)
        assert is_exempt(with_access) is expected
    message_gone = rig.request(follower, is_for_clients=False)
    message_gone.message = None
    assert not is_exempt(message_gone)


def test_unseen_clients_are_dropped() -> None:
    rig = QuotaRig(**{REQUEST_PERCENTAGE: 1})
    rig.quotas.charge(rig.request(MetadataRequest()))
    rig.clock.advance_ms(EXPIRY_MS)
    rig.quotas.expire()
    assert rig.quotas.request is not None
    assert rig.quotas.request.numbers() == []
