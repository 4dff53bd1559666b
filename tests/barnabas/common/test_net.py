"""Sockets and addresses."""

from __future__ import annotations

import socket

import pytest

from barnabas.common import net


def test_addresses_are_formatted() -> None:
    assert net.format_address("localhost", 9092) == "localhost:9092"
    assert net.format_address("::1", 1) == "[::1]:1"


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


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_all_interfaces_are_those_of_both_families(host: str) -> None:
    """As in Java. Where the kernel has no IPv6, they are those of IPv4."""
    with net.listen(host, 0, 5) as server:
        for address in ("127.0.0.1", "::1") if server.family == socket.AF_INET6 else ("127.0.0.1",):
            socket.create_connection((address, server.getsockname()[1]), 5).close()


def test_without_ipv6_all_interfaces_are_those_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "_has_both_families", lambda: False)
    with net.listen("", 0, 5) as server:
        assert server.family == socket.AF_INET
        socket.create_connection(("127.0.0.1", server.getsockname()[1]), 5).close()


def test_a_name_means_its_ipv4_address_if_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: both)
    with net.listen("name", 0, 5) as server:
        assert server.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(("host", "name"), [("10.0.0.1", b"10.0.0.1"), ("b-0.local", b"b-0.local"), ("bär", "bär")])
def test_only_a_name_in_another_script_is_looked_up_as_text(host: str, name: str | bytes) -> None:
    assert net.name_to_resolve(host) == name


def test_a_connection_is_made_by_name() -> None:
    with net.listen("127.0.0.1", 0, 5) as server:
        net.connect("localhost", server.getsockname()[1], 5).close()


@pytest.mark.parametrize("host", ["no such host", "a" * 64, "a..b", "\udc80"])
def test_what_is_no_name_is_not_connected_to(host: str) -> None:
    with pytest.raises((OSError, UnicodeError)):
        net.connect(host, 1, 5)
    assert not net.can_be_resolved(host)


def test_accepted_sockets_have_no_delay() -> None:
    with net.listen("", 0, 5) as server, socket.create_connection(("127.0.0.1", server.getsockname()[1])):
        server.setblocking(True)
        accepted, _ = server.accept()
        with accepted:
            net.configure_accepted(accepted, send_buffer_bytes=32768)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not accepted.getblocking()
    net.close_quietly(accepted)


def test_a_peer_that_left_is_noticed_before_what_it_sent_is_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"hello")
        assert not net.is_hung_up(ours)
        theirs.shutdown(socket.SHUT_WR)
        assert net.is_hung_up(ours)
        theirs.close()
        assert net.is_hung_up(ours)


def test_mapped_hosts() -> None:
    assert net.plain_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert net.plain_host("::1") == "::1"


def test_addresses_as_java_prints_them() -> None:
    # As jshell says: InetAddress.getByName(text)
    assert net.java_address("10.0.0.9") == "/10.0.0.9"
    assert net.java_address("::1") == "/0:0:0:0:0:0:0:1"
    assert net.java_address("2001:db8::a0b:0:c") == "/2001:db8:0:0:0:a0b:0:c"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("localhost", True),
        ("::1", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("127.example.com", False),
    ],
)
def test_loopback_addresses_are_known(host: str, expected: bool) -> None:
    assert net.is_loopback(host) == expected
