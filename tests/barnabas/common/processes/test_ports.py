"""Free and reserved ports."""

from __future__ import annotations

import socket

import pytest

from barnabas.common.processes import ports
from barnabas.common.processes.ports import HOST, LOWEST, free_ports, is_free, reserve_port


def test_a_port_is_free_until_a_process_listens_on_it() -> None:
    (port,) = free_ports(1)
    assert is_free(port)
    with socket.create_server((HOST, port)):
        assert not is_free(port)
    assert is_free(port)


def test_free_ports_are_distinct_and_avoid_the_given_ones() -> None:
    avoid = range(LOWEST, LOWEST + 5000)
    ports = list(free_ports(50, avoid))
    assert len(set(ports)) == 50
    assert not set(ports) & set(avoid)


def test_only_our_servers_can_use_a_reserved_port() -> None:
    port, reservation = reserve_port()
    with reservation:
        assert port not in free_ports(500)
        with socket.socket() as stranger, pytest.raises(OSError, match="Address already in use"):
            stranger.bind((HOST, port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port))
        with socket.create_server((HOST, port)), socket.create_connection((HOST, port)):
            pass
        assert is_free(port)
    with socket.create_server((HOST, port)):
        pass


def test_two_reservations_never_get_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_outgoing_range_start", lambda: 0)
    drawn = [reserve_port() for _ in range(300)]
    assert len({port for port, _ in drawn}) == 300
    for _, reservation in drawn:
        reservation.close()
