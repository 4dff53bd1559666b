from __future__ import annotations

import socket

from barnabas.common.ports import HOST, LOWEST, free_ports, is_free


def test_a_port_is_free_until_somebody_listens_on_it() -> None:
    (port,) = free_ports(1)
    assert is_free(port)
    with socket.create_server((HOST, port)):
        assert not is_free(port)
    assert is_free(port)


def test_free_ports_differ_and_keep_away_from_those_to_avoid() -> None:
    avoid = range(LOWEST, LOWEST + 5000)
    ports = list(free_ports(50, avoid))
    assert len(set(ports)) == 50
    assert not set(ports) & set(avoid)
