"""Processors (`processors.py`, `network/connections.py`) on a loopback port: every client gets its answers in order,
and a client's errors end only its own connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import struct
import threading
from pathlib import Path

import pytest

from barnabas.broker.processors import SLEEP_S
from barnabas.broker.requests.request import Request
from barnabas.common.clock import FakeClock
from barnabas.common.logs import LINES_MAX
from barnabas.protocol.errors import ErrorCode
from tests.support.broker.network import (
    FETCH,
    FETCH_VERSION,
    HEARTBEAT,
    HEARTBEAT_VERSION,
    TIMEOUT_S,
    Client,
    Network,
    Region,
    fetch,
    heartbeat,
)
from tests.support.waiting import eventually


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(key: int, version: int, client_id: bytes = b"\x00\x04test") -> bytes:
    return struct.pack(">hhi", key, version, 1) + client_id


def test_pipelined_requests_are_answered_in_order(network: Network) -> None:
    """However long each takes; one is in progress at a time."""
    with network.client() as client:
        kinds = ["ok", "park:5", "error", "bug", "ok", "park:1", "move:x"] * 30
        client.send(b"".join(heartbeat(kind, number) for number, kind in enumerate(kinds)))
        codes = [client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code for number in range(len(kinds))]
    expected = [
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NONE,
    ]
    assert codes == expected * 30


def test_a_request_byte_by_byte_is_answered(network: Network, bystander: Client) -> None:
    with network.client() as client:
        for byte in heartbeat("ok", 5):
            client.send(bytes([byte]))
            bystander.heartbeat("ok")
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 5).error_code == ErrorCode.NONE


@pytest.mark.parametrize("kind", ["last", "close"])
def test_nothing_follows_the_last_request_of_a_connection(network: Network, bystander: Client, kind: str) -> None:
    with network.client() as client:
        kinds = ["ok", "ok", kind, "move:after"]
        client.send(b"".join(heartbeat(kind, number) for number, kind in enumerate(kinds)))
        for number in range(2 if kind == "close" else 3):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert client.is_closed_by_server()
    bystander.heartbeat("ok")
    assert network.services.completed == []


@pytest.mark.parametrize("bad", [struct.pack(">i", -1), struct.pack(">i", 8) + b"\0\x0c\0\0\0\0\0\0"])
def test_requests_before_garbage_are_answered(network: Network, bystander: Client, bad: bytes) -> None:
    with network.client() as client:
        client.send(b"".join(heartbeat("ok", number) for number in range(20)) + bad)
        for number in range(20):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert client.is_closed_by_server()


def test_a_request_without_response_lets_the_next_one_in(network: Network) -> None:
    with network.client() as client:
        client.send(heartbeat("none", 1) + heartbeat("none", 2) + heartbeat("ok", 3))
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 3).error_code == ErrorCode.NONE


def test_the_last_response_is_sent_before_closing(network: Network) -> None:
    with network.client() as client:
        assert client.heartbeat("last", 1) == ErrorCode.NONE
        assert client.is_closed_by_server()
    with network.client() as client:
        client.send(heartbeat("close", 1))
        assert client.is_closed_by_server()


def test_a_throttled_client_waits_only_for_its_next_response(network: Network, bystander: Client) -> None:
    with network.client() as client:
        assert client.heartbeat("throttle:600000") == ErrorCode.NONE, "the response itself is not delayed"
        bystander.heartbeat("ok")
    with network.client() as client:
        before_ms = network.clock.monotonic_ms()
        client.send(heartbeat("throttle:150", 1) + heartbeat("none-throttled:150", 2) + heartbeat("ok", 3))
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 1).error_code == ErrorCode.NONE
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 3).error_code == ErrorCode.NONE
        assert network.clock.monotonic_ms() - before_ms >= 290


@pytest.mark.parametrize("count", [2, 40, 150])
def test_clients_that_send_at_once_all_get_their_responses(count: int) -> None:
    """Their requests are read together, and their responses sent together (network/batches/many_sockets.py)."""
    with (
        Network(num_network_threads=1, handlers=1, queued_max_requests=1) as network,
        contextlib.ExitStack() as stack,
        network.client() as first,
        network.client() as second,
        network.client() as third,
    ):
        clients = [stack.enter_context(network.client()) for _ in range(count)]
        for client in clients:
            client.heartbeat("ok")
        network.block_processor(first, second, third)
        for number, client in enumerate(clients):
            client.send(heartbeat("ok", 2 * number) + heartbeat("ok", 2 * number + 1))
        half = heartbeat("ok", 7)
        clients[0].send(half[:10])
        clients[-1].send(fetch(100_000, 8))
        network.services.gate.set()
        for number, client in enumerate(clients):
            for correlation_id in (2 * number, 2 * number + 1):
                response = client.receive(HEARTBEAT, HEARTBEAT_VERSION, correlation_id)
                assert response.error_code == ErrorCode.NONE
        clients[0].send(half[10:])
        assert clients[0].receive(HEARTBEAT, HEARTBEAT_VERSION, 7).error_code == ErrorCode.NONE
        response = clients[-1].receive(FETCH, FETCH_VERSION, 8)
        assert len(response.responses[0].partitions[0].records) == 100_000


def test_clients_that_leave_at_once_disturb_no_other() -> None:
    with Network(num_network_threads=1, handlers=1) as network, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(30)]
        for client in clients:
            client.heartbeat("ok")
        clients[0].send(heartbeat("wait", 1))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        for client in clients[1:]:
            client.send(heartbeat("ok", 1))
        for client in clients[1::3]:
            reset = struct.pack("ii", 1, 0)
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            client.sock.close()
        for client in clients[2::3]:
            client.send(BAD_STREAMS["negative size"])
        network.services.gate.set()
        for client in clients[0::3]:
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 1).error_code == ErrorCode.NONE
            client.heartbeat("ok")
        eventually("the others are gone", lambda: network.server.quotas.total() == 10)


@pytest.mark.parametrize("last", [heartbeat("last", 1), struct.pack(">i", -1)], ids=["sending", "receiving"])
def test_a_bug_at_one_connection_disturbs_no_other(last: bytes) -> None:
    """What was received or sent for others by the same call is neither lost nor repeated."""
    with (
        Network(num_network_threads=1, handlers=1, queued_max_requests=1) as network,
        contextlib.ExitStack() as stack,
        network.client() as first,
        network.client() as second,
        network.client() as third,
    ):
        clients = [stack.enter_context(network.client()) for _ in range(10)]
        for client in clients:
            client.heartbeat("ok")
        clients[3].heartbeat("bug-when-closed")
        network.block_processor(first, second, third)
        for number, client in enumerate(clients):
            client.send(last if number == 3 else heartbeat("ok", number))
        network.services.gate.set()
        for number, client in enumerate(clients):
            if number != 3:
                assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
                client.heartbeat("ok")
        eventually("the one is gone", lambda: network.server.quotas.total() == 12)


class NetworkTimes:
    """Quotas that note the thread time of each request."""

    request: object = None

    def __init__(self) -> None:
        self.noted: list[tuple[int, int]] = []  # (correlation id, nanoseconds)

    def add_network_time(self, request: Request, thread_ns: int) -> None:
        self.noted.append((request.header.correlation_id, thread_ns))


def test_the_time_of_the_network_thread_is_charged_once_a_run_while_a_quota_exists() -> None:
    quotas = NetworkTimes()
    with Network(client_quotas=quotas) as network, network.client() as client:
        client.heartbeat("ok", 1)
        assert quotas.noted == []
        quotas.request = object()
        client.heartbeat("ok", 2)
        client.heartbeat("ok", 3)
        eventually("the time of request 3 is noted", lambda: quotas.noted[-1:] and quotas.noted[-1][0] == 3)
        assert all(thread_ns > 0 for _, thread_ns in quotas.noted)


def test_large_responses_arrive_whole(network: Network, tmp_path: Path) -> None:
    content = random.Random(3).randbytes(3_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    with network.client() as client:
        client.send(fetch(2_000_000, 1) + fetch(2_500_000, 2, fd, 1_000) + fetch(3, 3, fd))
        parts = []
        for number in (1, 2, 3):
            response = client.receive(FETCH, FETCH_VERSION, number)
            parts.append(bytes(response.responses[0].partitions[0].records))
    os.close(fd)
    assert parts == [bytes(2_000_000), content[1_000:2_501_000], content[:3]]


def test_a_large_request_is_read(network: Network) -> None:
    with network.client() as client:
        big = heartbeat("ok", 1, 0) + bytes(5_000_000)  # bytes after the body are ignored, as in Kafka
        client.send(frame(big[4:]))
        assert client.receive(HEARTBEAT, 0, 1).error_code == ErrorCode.NONE


BAD_STREAMS = {
    "negative size": struct.pack(">i", -1),
    "least size": struct.pack(">i", -(2**31)),
    "size too large": struct.pack(">i", 104857601),
    "TLS hello": bytes.fromhex("16030100a5010000a10303") + bytes(100),
    "HTTP": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "empty frame": frame(b""),
    "cut header": frame(b"\x00\x0c\x00"),
    "unknown key": frame(header(999, 0)),
    "negative key": frame(header(-1, 0)),
    "key not served here": frame(header(0, 9)),
    "version too new": frame(header(HEARTBEAT, HEARTBEAT_VERSION + 1) + b"\0"),
    "negative version": frame(header(HEARTBEAT, -1)),
    "client id longer than the frame": frame(header(HEARTBEAT, 0, b"\x7f\xff") + b"abc"),
    "client id that is not text": frame(header(HEARTBEAT, 0, b"\x00\x02\xff\xfe")),
    "cut body": frame(heartbeat("ok")[4:-5]),
    "array longer than the frame": frame(header(FETCH, 4) + struct.pack(">iiiibi", -1, 1, 1, 1, 0, 2**31 - 1)),
    "random bytes": frame(random.Random(4).randbytes(5_000)),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
def test_garbage_closes_its_own_connection(
    network: Network, bystander: Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), network.client() as client:
        assert client.heartbeat("ok") == ErrorCode.NONE
        with contextlib.suppress(ConnectionError):
            client.send(BAD_STREAMS[name])
        assert client.is_closed_by_server()
        bystander.heartbeat("ok")
    assert len(caplog.records) == 1, "one line in the log"
    assert "closing connection" in caplog.text


def test_clients_that_send_garbage_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), Network(num_network_threads=1) as network:
        for _ in range(LINES_MAX + 20):
            with network.client() as client:
                client.send(BAD_STREAMS["least size"])
                assert client.is_closed_by_server()
    lines = [record for record in caplog.records if record.message.startswith("closing connection")]
    assert [record.levelno for record in lines] == [logging.WARNING] * LINES_MAX


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 20])
def test_a_frame_cut_off_by_its_client_is_dropped(network: Network, bystander: Client, cut: int) -> None:
    with network.client() as client:
        client.send(heartbeat("ok")[:cut])
    eventually("it is gone", lambda: network.server.quotas.total() == 1)


@pytest.mark.parametrize("seed", range(3))
def test_random_connections_never_disturb(network: Network, bystander: Client, seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(40):
        with network.client() as client, contextlib.suppress(ConnectionError):
            data = random_.randbytes(random_.randrange(1, 200))
            client.send(frame(data) if random_.random() < 0.7 else data)
            if random_.random() < 0.5:
                reset = struct.pack("ii", 1, 0)
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        bystander.heartbeat("ok")
    eventually("they are gone", lambda: network.server.quotas.total() == 1)


def test_a_client_that_never_reads_blocks_only_itself(network: Network, bystander: Client) -> None:
    with network.client() as client:
        for number in range(20):
            client.send(fetch(1_000_000, number))
        for number in range(100):
            bystander.heartbeat("ok", number)

        def sending() -> int:
            return sum(connection.outgoing is not None for connection in network.connections())

        eventually("its response waits for it to read", lambda: sending() == 1)
        for number in range(20):
            response = client.receive(FETCH, FETCH_VERSION, number)
            assert len(response.responses[0].partitions[0].records) == 1_000_000


def test_an_exception_at_one_blocked_response_neither_repeats_nor_loses_bytes_of_another(
    network: Network, tmp_path: Path
) -> None:
    size = 24 << 20
    content = random.Random(1).randbytes(size)
    (tmp_path / "whole").write_bytes(content)
    (tmp_path / "cut").write_bytes(bytes(size))
    with (
        (tmp_path / "whole").open("rb") as whole,
        (tmp_path / "cut").open("rb") as cut,
        network.client() as failing,
        network.client() as other,
    ):
        failing.heartbeat("bug-when-closed")
        for client, file in ((failing, cut), (other, whole)):
            client.send(fetch(size, 1, file.fileno()))
        eventually("both are blocked", lambda: len([c for c in network.connections() if c.outgoing is not None]) == 2)
        os.truncate(tmp_path / "cut", size // 2)
        reader = threading.Thread(target=drain, args=(failing.sock,))
        reader.start()
        assert other.receive(FETCH, FETCH_VERSION, 1).responses[0].partitions[0].records == content
        reader.join()


def test_a_blocked_response_that_cannot_be_sent_ends_its_connection_only(
    network: Network, bystander: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_region: Region) -> int:
        raise ValueError("our bug")

    (tmp_path / "segment").write_bytes(bytes(40 << 20))
    with (tmp_path / "segment").open("rb") as file, network.client() as client:
        client.send(fetch(40 << 20, 1, file.fileno()))
        eventually("it is blocked", lambda: any(c.outgoing is not None for c in network.connections()))
        monkeypatch.setattr(Region, "fileno", fails)
        bystander.heartbeat("ok")
        drain(client.sock)
        bystander.heartbeat("ok")
        assert len(network.connections()) == 1


def drain(sock: socket.socket) -> None:
    """Read until the connection is closed."""
    with contextlib.suppress(ConnectionError):
        while sock.recv(1 << 16):
            pass


def test_a_client_that_disconnects_during_its_response_is_closed(network: Network, bystander: Client) -> None:
    for _ in range(10):
        with network.client() as client:
            client.send(fetch(5_000_000, 1) + fetch(5_000_000, 2))
            client.read(10)
    eventually("they are gone", lambda: network.server.quotas.total() == 1)


def test_a_client_that_disconnects_while_waiting_is_closed(network: Network, bystander: Client) -> None:
    with network.client() as client:
        client.send(heartbeat("park:100", 1))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
    eventually("it is gone", lambda: network.server.quotas.total() == 1)


def test_a_connection_reports_its_end_once(network: Network, bystander: Client) -> None:
    ended: list[str] = []
    with network.client() as client:
        client.heartbeat("ok")
        (connection,) = [c for c in network.connections() if c.context.client_port == client.sock.getsockname()[1]]
        connection.on_closed["test"] = lambda: ended.append(connection.context.connection_id)
        bystander.heartbeat("ok")
        assert ended == []
    eventually("it is reported", lambda: ended == [connection.context.connection_id])
    bystander.heartbeat("ok")
    assert len(ended) == 1


def test_a_pipelining_client_that_does_not_read_gets_no_second_large_response(network: Network) -> None:
    with network.client() as client:
        client.send(heartbeat("ok", 0) + b"".join(fetch(20_000_000, number) for number in range(1, 5)))
        eventually("a response is unread", lambda: any(c.outgoing is not None for c in network.connections()))
        (connection,) = network.connections()
        assert sum(map(len, connection.outgoing or ())) <= 20_000_100
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 0).error_code == ErrorCode.NONE
        for number in range(1, 5):
            client.receive(FETCH, FETCH_VERSION, number)


def test_a_client_that_sends_a_large_frame_slowly_is_not_idle() -> None:
    """Although its bytes do not wake the processor (connection.py, invariant 3)."""
    clock = FakeClock()
    with (
        Network(clock=clock, connections_max_idle_ms=60_000, barnabas_busy_poll_max_us=0) as network,
        network.client() as slow,
    ):
        slow.heartbeat("ok")
        (connection,) = network.connections()
        slow.send((1 << 20).to_bytes(4, "big"))
        eventually("no single byte wakes the processor", lambda: connection.expected_bytes)
        for count in range(1, 3):
            slow.send(b"0")
            clock.advance_ms(61_000)
            missing = (1 << 20) - count
            eventually("it is read", lambda m=missing: connection.frames.missing_bytes() == m)
            eventually("no single byte wakes the processor", lambda: connection.expected_bytes)
        clock.advance_ms(61_000)
        eventually("one byte would", lambda: not connection.expected_bytes)
        clock.advance_ms(61_000)
        assert slow.is_closed_by_server()


def test_idle_connections_are_closed() -> None:
    clock = FakeClock()
    with (
        Network(clock=clock, connections_max_idle_ms=60_000, barnabas_busy_poll_max_us=0) as network,
        network.client() as idle,
        network.client() as busy,
    ):
        idle.heartbeat("ok")
        for _ in range(3):
            assert busy.heartbeat("ok") == ErrorCode.NONE
            clock.advance_ms(30_000)
        assert busy.heartbeat("ok") == ErrorCode.NONE
        assert idle.is_closed_by_server()
        assert busy.heartbeat("ok") == ErrorCode.NONE


@pytest.mark.parametrize(("idle_ms", "sleep_s"), [(600_000, 600 / 128), (60_000, 1), (-1, 600 / 128), (10**9, 5)])
def test_an_idle_processor_sleeps_long_unless_idle_connections_expire_soon(idle_ms: int, sleep_s: float) -> None:
    with Network(connections_max_idle_ms=idle_ms) as network, network.client() as client:
        assert client.heartbeat("ok") == ErrorCode.NONE
        assert {processor._sleep_s() for processor in network.server.processors()} == {sleep_s}


def test_an_idle_processor_looks_often_for_excess_connections_at_the_limit() -> None:
    """No event tells it that there is one, or another one, as after max.connections was lowered."""
    with Network(num_network_threads=1) as network, network.client() as first, network.client() as second:
        first.heartbeat("ok")
        second.heartbeat("ok")
        (processor,) = network.server.processors()
        for limit, looks_often in ((3, False), (2, True), (1, True)):
            network.server.quotas.update(max_connections=limit)
            assert (processor._sleep_s() == SLEEP_S) is looks_often
