"""Changed quotas reach what enforces them; a push waits for no name server."""

from __future__ import annotations

import pytest

from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.quotas.rates import Window
from barnabas.broker.quotas.updates import AddressLimits, QuotaUpdates, plain_address
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.security.image import Kind, SecurityImage
from barnabas.security.values import QuotaEntity


class UpdatesRig:
    def __init__(self) -> None:
        clock = FakeClock()
        self.scheduler = ManualScheduler(clock)
        self.clients = ClientQuotas(Window(11, 1000), clock)
        self.rates: list[AddressLimits] = []
        self.updates = QuotaUpdates(self.clients, self.rates.append, self.scheduler)

    def change(self, *changed: Kind, **hosts: float) -> None:
        quotas = {
            QuotaEntity.of({"ip": None if host == "default" else host}): {"connection_creation_rate": limit}
            for host, limit in hosts.items()
        }
        user = {QuotaEntity.of({"user": "alice"}): {"producer_byte_rate": 5.0}}
        self.updates.security_changed(SecurityImage(quotas={**user, **quotas}), frozenset(changed))


def test_addresses_take_effect_at_once() -> None:
    rig = UpdatesRig()
    rig.change(Kind.QUOTAS, **{"10.0.0.1": 3, "default": 9})
    assert rig.rates == [{"10.0.0.1": 3, None: 9}]
    assert rig.clients.produce is not None
    assert rig.scheduler.run_due() == 0


def test_other_changes_are_not_looked_at() -> None:
    rig = UpdatesRig()
    rig.change(Kind.ACLS)
    assert rig.rates == []
    assert rig.clients.produce is None


def test_names_are_resolved_later(caplog: pytest.LogCaptureFixture) -> None:
    rig = UpdatesRig()
    rig.change(Kind.QUOTAS, **{"localhost": 4, "no.such.host.invalid": 5, "10.0.0.1": 3})
    assert rig.rates == [{"10.0.0.1": 3}]
    rig.scheduler.run_due()
    assert rig.rates[1]["127.0.0.1"] == 4
    assert rig.rates[1]["10.0.0.1"] == 3
    assert "the connection quota of host no.such.host.invalid has no effect" in caplog.text


def test_a_late_answer_of_a_name_server_has_no_effect() -> None:
    rig = UpdatesRig()
    rig.change(Kind.QUOTAS, localhost=4)
    rig.change(Kind.QUOTAS, default=1)
    rig.scheduler.run_due()
    assert rig.rates == [{}, {None: 1}]


def test_addresses_are_written_in_one_way() -> None:
    assert plain_address("::FFFF:10.0.0.1") == "10.0.0.1"
    assert plain_address("FE80:0:0::1%eth0") == "fe80::1"
    assert plain_address("host") is None
