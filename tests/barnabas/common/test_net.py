"""Sockets and addresses."""

from __future__ import annotations

import socket

import pytest

from barnabas.common import net


@pytest.mark.parametrize(
    ("text", "address"), [("localhost:9092", ("localhost", 9092)), ("[::1]:1", ("::1", 1)), (":0", ("", 0))]
)
def test_addresses_are_parsed_and_formatted(text: str, address: tuple[str, int]) -> None:
    assert net.parse_address(text) == address
    assert net.format_address(*address) == text


@pytest.mark.parametrize("text", ["", "9092", "host:", "host:http", "host:70000", "::1:9092", "h:-1"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|IPv6"):
        net.parse_address(text)


def test_a_taken_port_is_one_clear_line() -> None:
    with net.listen("127.0.0.1", 0, 5, receive_buffer_bytes=65536) as server:
        port = server.getsockname()[1]
        with pytest.raises(net.AddressError, match=rf"^cannot listen on 127\.0\.0\.1:{port}: the port is taken"):
            net.listen("127.0.0.1", port, 5)


def test_an_unknown_host_is_one_clear_line() -> None:
    with pytest.raises(net.AddressError, match="cannot listen on no such host:1: the host is not known"):
        net.listen("no such host", 1, 5)
    with pytest.raises(net.AddressError, match="no interface of this machine"):
        net.listen("192.0.2.1", 0, 5)


def test_accepted_sockets_have_no_delay() -> None:
    with net.listen("", 0, 5) as server, socket.create_connection(("127.0.0.1", server.getsockname()[1])):
        server.setblocking(True)
        accepted, _ = server.accept()
        with accepted:
            net.configure_accepted(accepted, send_buffer_bytes=32768)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not accepted.getblocking()
    net.close_quietly(accepted)


def test_wildcard_and_mapped_hosts() -> None:
    assert [net.is_wildcard(host) for host in ("", "0.0.0.0", "::", "broker")] == [True, True, True, False]
    assert net.plain_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert net.plain_host("::1") == "::1"
