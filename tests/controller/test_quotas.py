"""The quotas of a controller's own listeners."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.quotas.updates import AddressLimits
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.client.connection import NodeConnection
from barnabas.common.clock import FakeClock, SystemClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.controller.main import ControllerServer
from barnabas.controller.quotas import EXPIRE_MS, ControllerQuotas
from barnabas.protocol.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.security.image import SecurityImage
from barnabas.security.values import QuotaEntity
from tests.controller.rig import CLUSTER_ID, make_config, registration

ANY_USER = QuotaEntity.of({"user": None})
ADDRESS = QuotaEntity.of({"ip": "10.0.0.1"})


def test_the_limits_of_a_new_image_are_in_force_and_an_equal_one_changes_nothing() -> None:
    rates: list[AddressLimits] = []
    clock = FakeClock()
    quotas = ControllerQuotas(make_config(), clock, ManualScheduler(clock))
    quotas.limit_addresses(rates.append)
    image = SecurityImage(quotas={ANY_USER: {"request_percentage": 5.0}, ADDRESS: {"connection_creation_rate": 3.0}})
    quotas.take(image)
    assert quotas.clients.request is not None
    assert rates == [{"10.0.0.1": 3.0}]
    quotas.take(SecurityImage(acls={}, quotas=image.quotas))
    assert len(rates) == 1
    quotas.take(SecurityImage())
    assert quotas.clients.request is None
    assert rates[-1] == {}


def test_the_rates_of_clients_that_are_gone_are_dropped() -> None:
    clock = FakeClock()
    scheduler = ManualScheduler(clock)
    quotas = ControllerQuotas(make_config(), clock, scheduler)
    quotas.limit_addresses(lambda _limits: None)
    quotas.start()
    quotas.take(SecurityImage(quotas={ANY_USER: {"request_percentage": 5.0}}))
    assert quotas.clients.request is not None
    quotas.clients.request.count("alice", "c", 1.0, clock.monotonic_ms())
    clock.advance_ms(2 * 3_600_000)
    assert EXPIRE_MS < 3_600_000
    scheduler.run_due()
    assert quotas.clients.request.numbers() == []


@pytest.fixture
def server() -> Iterator[ControllerServer]:
    server = ControllerServer(make_config(barnabas_metrics_port="-1"), SystemClock(), MemoryFileSystem(), CLUSTER_ID)
    server.start()
    yield server
    server.stop()


def test_a_client_of_the_controller_waits_and_a_broker_does_not(server: ControllerServer) -> None:
    limit = RequestEntryData(
        entity=[EntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key="request_percentage", value=0.0001, remove=False)],
    )
    with NodeConnection("127.0.0.1", server.port, timeout_ms=60_000) as client:
        assert client.send(AlterClientQuotasRequest(entries=[limit]), 1).entries[0].error_code == 0
    with NodeConnection("127.0.0.1", server.port, timeout_ms=60_000) as client:
        assert client.send(ListPartitionReassignmentsRequest(topics=None), 0).throttle_time_ms > 0
    with NodeConnection("127.0.0.1", server.port, timeout_ms=60_000) as broker:
        joined = broker.send(registration(0), 4)
        assert (joined.error_code, joined.throttle_time_ms) == (0, 0)
        beat = BrokerHeartbeatRequest(
            broker_id=0, broker_epoch=joined.broker_epoch, current_metadata_offset=-1, want_fence=True
        )
        assert broker.send(beat, 2).throttle_time_ms == 0
