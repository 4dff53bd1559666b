"""The network layer on a loopback port: what clients do to it, and that nobody else notices."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.processors import INBOX_SIZE
from barnabas.broker.request_channel import HAS_GLOBAL_LOCK
from barnabas.common.net import AddressError
from barnabas.metrics import catalogue
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k12_heartbeat import HeartbeatResponse
from tests.support.network import (
    FETCH,
    FETCH_VERSION,
    HEARTBEAT,
    HEARTBEAT_VERSION,
    TIMEOUT_S,
    Client,
    ListenerRow,
    Network,
    api_versions_request,
    fetch,
    heartbeat,
)
from tests.support.waiting import eventually


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def bystander(network: Network) -> Iterator[Client]:
    """Another client's connection, which must work before and after whatever a test does."""
    with network.client() as client:
        assert client.heartbeat("ok") == ErrorCode.NONE
        yield client
        assert client.heartbeat("ok", 99) == ErrorCode.NONE


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(key: int, version: int, client_id: bytes = b"\x00\x04test") -> bytes:
    return struct.pack(">hhi", key, version, 1) + client_id


# --- what works ---------------------------------------------------------------------------------------------------


def test_a_request_is_answered(bystander: Client) -> None:
    assert [bystander.heartbeat("ok", number) for number in range(2, 50)] == [ErrorCode.NONE] * 48


@pytest.mark.parametrize("version", range(HEARTBEAT_VERSION + 1))
def test_every_version_is_answered(network: Network, version: int) -> None:
    with network.client() as client:
        client.send(heartbeat("ok", 7, version))
        assert client.receive(HEARTBEAT, version, 7).error_code == ErrorCode.NONE


def test_pipelined_requests_are_answered_in_order(network: Network) -> None:
    """However different the times they take; and one is in progress at a time."""
    with network.client() as client:
        kinds = ["ok", "park:5", "error", "mistake", "ok", "park:1", "move:x"] * 30
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


def test_a_parked_request_is_answered_by_whoever_completes_it(network: Network) -> None:
    with network.client() as waiting, network.client() as other:
        waiting.send(heartbeat("park", 3))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        assert other.heartbeat("ok") == ErrorCode.NONE
        answer = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        assert network.services.deferred[0].complete(answer)
        response = waiting.receive(HEARTBEAT, HEARTBEAT_VERSION, 3)
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_what_follows_a_parked_request_in_the_same_write_waits_for_it(network: Network) -> None:
    with network.client() as client:
        kinds = ["ok", "none", "move:before", "park", "move:after", "ok"]
        client.send(b"".join(heartbeat(kind, number) for number, kind in enumerate(kinds)))
        for number in (0, 2):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        (connection,) = network.connections()

        def waits_for() -> int:
            request = connection.request
            return -1 if request is None else request.header.correlation_id

        eventually("the parked one is what it waits for", lambda: waits_for() == 3)
        assert network.services.completed == ["before"]
        answer = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        assert network.services.deferred[0].complete(answer)
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        for number in (4, 5):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert network.services.completed == ["before", "after"]


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
def test_what_came_before_garbage_is_answered(network: Network, bystander: Client, bad: bytes) -> None:
    with network.client() as client:
        client.send(b"".join(heartbeat("ok", number) for number in range(20)) + bad)
        for number in range(20):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert client.is_closed_by_server()


def test_no_answer_lets_the_next_request_in(network: Network) -> None:
    with network.client() as client:
        client.send(heartbeat("none", 1) + heartbeat("none", 2) + heartbeat("ok", 3))
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 3).error_code == ErrorCode.NONE


def test_the_last_answer_is_sent_before_closing(network: Network) -> None:
    with network.client() as client:
        assert client.heartbeat("last", 1) == ErrorCode.NONE
        assert client.is_closed_by_server()
    with network.client() as client:
        client.send(heartbeat("close", 1))
        assert client.is_closed_by_server()


def test_a_throttled_client_waits_for_its_next_answer_only(network: Network, bystander: Client) -> None:
    with network.client() as client:
        client.send(heartbeat("throttle:150", 1) + heartbeat("none-throttled:150", 2) + heartbeat("ok", 3))
        before_ms = network.clock.monotonic_ms()
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 1).error_code == ErrorCode.NONE
        assert network.clock.monotonic_ms() - before_ms < 140, "the answer itself is not held back"
        bystander.heartbeat("ok")
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 3).error_code == ErrorCode.NONE
        assert network.clock.monotonic_ms() - before_ms >= 290


def test_large_answers_arrive_whole(network: Network, tmp_path: Path) -> None:
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
        big = heartbeat("ok", 1, 0) + bytes(5_000_000)  # what follows the body is ignored, as in Kafka
        client.send(frame(big[4:]))
        assert client.receive(HEARTBEAT, 0, 1).error_code == ErrorCode.NONE


# --- what clients do wrong ----------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 20])
def test_a_frame_cut_by_its_client_is_forgotten(network: Network, bystander: Client, cut: int) -> None:
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

        eventually("its answer waits for it to read", lambda: sending() == 1)
        for number in range(20):
            response = client.receive(FETCH, FETCH_VERSION, number)
            assert len(response.responses[0].partitions[0].records) == 1_000_000


def test_a_client_that_vanishes_while_being_answered_is_forgotten(network: Network, bystander: Client) -> None:
    for _ in range(10):
        with network.client() as client:
            client.send(fetch(5_000_000, 1) + fetch(5_000_000, 2))
            client.read(10)
    eventually("they are gone", lambda: network.server.quotas.total() == 1)


def test_a_client_that_vanishes_while_waiting_is_forgotten(network: Network, bystander: Client) -> None:
    with network.client() as client:
        client.send(heartbeat("park:100", 1))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
    eventually("it is gone", lambda: network.server.quotas.total() == 1)


def test_our_mistakes_are_told_apart(network: Network, bystander: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), network.client() as client:
        assert client.heartbeat("error", 1557) == ErrorCode.NOT_COORDINATOR
        assert "Request 1557 from client=test failed with NOT_COORDINATOR (Heartbeat v4" in caplog.text
        assert client.heartbeat("mistake", 1558) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "correlation id 1558 from client=test" in caplog.text
        assert client.heartbeat("not-encodable", 3) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.heartbeat("move:broken", 4) == ErrorCode.NONE
        assert client.heartbeat("unheard-of", 5) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.heartbeat("ok", 6) == ErrorCode.NONE
    assert network.services.completed == ["broken"]


def test_a_full_request_queue_holds_clients_back_and_loses_nothing() -> None:
    with Network(handlers=2, queued_max_requests=3) as network, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(60)]
        for number, client in enumerate(clients):
            client.send(heartbeat("wait", number))
        for _ in range(2):
            assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        eventually("the queue is full", lambda: network.channel.request_queue_size() == 3)
        network.services.gate.set()
        for number, client in enumerate(clients):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE


def test_one_blocked_handler_does_not_hold_up_the_others(network: Network, bystander: Client) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(7):
            stack.enter_context(network.client()).send(heartbeat("wait", number))
            assert network.services.arrived.acquire(timeout=TIMEOUT_S)
            for again in range(20):
                bystander.heartbeat("ok", again)
        network.services.gate.set()


# --- how many may come --------------------------------------------------------------------------------------------


def test_two_thousand_connections_at_once(network: Network, bystander: Client) -> None:
    count = 2_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + 200
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with contextlib.ExitStack() as stack:
        clients: list[Client] = []
        for _ in range(count // INBOX_SIZE):
            # Why no more at a time: whoever's inbox is full is passed over, and then chance deals.
            clients.extend(stack.enter_context(network.client()) for _ in range(INBOX_SIZE))
            eventually("they are taken over", lambda: len(network.connections()) == len(clients) + 1)
        for number, client in enumerate(clients):
            client.send(heartbeat("ok", number))
        bystander.heartbeat("ok")
        for number, client in enumerate(clients):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert network.server.quotas.total() == count + 1
        by_processor = [len(processor.connections()) for processor in network.server.processors()]
        assert max(by_processor) - min(by_processor) < count // 2
    eventually("they are gone", lambda: network.server.quotas.total() == 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_asks_much_at_once_and_does_not_read_gets_no_second_large_answer(network: Network) -> None:
    with network.client() as client:
        client.send(heartbeat("ok", 0) + b"".join(fetch(20_000_000, number) for number in range(1, 5)))
        eventually("an answer waits for it to read", lambda: any(c.outgoing is not None for c in network.connections()))
        (connection,) = network.connections()
        assert sum(map(len, connection.outgoing or ())) <= 20_000_100
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 0).error_code == ErrorCode.NONE
        for number in range(1, 5):
            client.receive(FETCH, FETCH_VERSION, number)


def loads(network: Network) -> list[int]:
    return [processor.load() for processor in network.server.processors()]


@pytest.mark.skipif(not HAS_GLOBAL_LOCK, reason="threads that run at the same time are given connections in turn")
def test_processors_are_filled_one_after_another(network: Network) -> None:
    with contextlib.ExitStack() as stack:
        for expected in ([4, 0, 0], [4, 4, 0], [4, 4, 4]):
            for _ in range(4):
                assert stack.enter_context(network.client()).heartbeat("ok") == ErrorCode.NONE
            assert loads(network) == expected
        for _ in range(6):
            assert stack.enter_context(network.client()).heartbeat("ok") == ErrorCode.NONE
        assert loads(network) == [6, 6, 6]
    eventually("they are gone", lambda: network.server.quotas.total() == 0)
    assert loads(network) == [0, 0, 0]


@pytest.mark.skipif(not HAS_GLOBAL_LOCK, reason="threads that run at the same time are given connections in turn")
def test_connections_that_move_large_pieces_are_dealt_in_turn(network: Network) -> None:
    def count() -> list[int]:
        return [processor.metrics.connection_count for processor in network.server.processors()]

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(4)]
        for client in clients:
            client.heartbeat("ok")
        assert loads(network) == count() == [4, 0, 0]
        for client in clients:
            # What is in the pipeline behind the large piece is read by the processor that has the connection then.
            client.send(fetch(100_000, 1) + heartbeat("ok", 2) + fetch(100_000, 3) + heartbeat("park:5", 4))
        for client in clients:
            for number, key, version in ((1, FETCH, FETCH_VERSION), (2, HEARTBEAT, HEARTBEAT_VERSION)):
                client.receive(key, version, number)
            client.receive(FETCH, FETCH_VERSION, 3)
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 4).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert loads(network) == count() == [2, 1, 1]
    eventually("they are gone", lambda: network.server.quotas.total() == 0)
    assert loads(network) == count() == [0, 0, 0]


def test_where_connections_are_dealt_in_turn_they_stay() -> None:
    with Network(barnabas_connections_per_processor=1) as network, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(4)]
        for client in clients:
            client.heartbeat("ok")
        before = loads(network)
        assert before == [2, 1, 1]
        for client in clients[:3]:
            client.send(fetch(100_000, 1))
            client.receive(FETCH, FETCH_VERSION, 1)
        assert loads(network) == before


def test_an_address_has_a_limit() -> None:
    with Network(max_connections_per_ip=10, max_connections_per_ip_overrides="127.0.0.1:2") as network:
        with network.client() as first, network.client() as second:
            assert first.heartbeat("ok") == second.heartbeat("ok") == ErrorCode.NONE
            with network.client() as third:
                assert third.is_closed_by_server()
            assert first.heartbeat("ok") == ErrorCode.NONE
        eventually("they are gone", lambda: network.server.quotas.total() == 0)
        with network.client() as fourth:
            assert fourth.heartbeat("ok") == ErrorCode.NONE


def test_over_the_limit_clients_wait_in_the_backlog() -> None:
    with Network(max_connections=1) as network:
        with network.client() as first, network.client() as second:
            first.heartbeat("ok")
            second.send(heartbeat("ok", 8))
            second.sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                second.sock.recv(1)
            second.sock.settimeout(TIMEOUT_S)
            first.sock.close()
            assert second.receive(HEARTBEAT, HEARTBEAT_VERSION, 8).error_code == ErrorCode.NONE
        blocked = network.registry.meter(catalogue.ACCEPTOR_BLOCKED_PERCENT, listener="PLAINTEXT")
        assert blocked.count > 0


def test_a_broker_over_the_limit_costs_the_idlest_client_its_connection() -> None:
    rows = (ListenerRow("CLIENT"), ListenerRow("BROKER"))
    limits = {"max_connections": 2, "num_network_threads": 1}
    with (
        Network(listeners=rows, inter_broker_listener="BROKER", **limits) as network,
        network.client("CLIENT") as idle,
        network.client("CLIENT") as busy,
    ):
        idle.heartbeat("ok")
        busy.heartbeat("ok")
        with network.client("BROKER") as broker:
            assert broker.heartbeat("ok") == ErrorCode.NONE
            assert idle.is_closed_by_server()
            assert busy.heartbeat("ok") == ErrorCode.NONE


def test_a_listener_has_limits_of_its_own() -> None:
    originals = {"listener.name.small.max.connections": "1", "listener.name.small.num.network.threads": "2"}
    with Network(listeners=(ListenerRow("SMALL"), ListenerRow("LARGE")), originals=originals) as network:
        assert [len(network.server.acceptors[name].processors) for name in ("SMALL", "LARGE")] == [2, 3]
        with network.client("SMALL") as first, network.client("SMALL") as second, network.client("LARGE") as third:
            first.heartbeat("ok")
            third.heartbeat("ok")
            second.send(heartbeat("ok", 2))
            second.sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                second.sock.recv(1)


def test_idle_connections_are_closed() -> None:
    with Network(connections_max_idle_ms=300) as network, network.client() as idle, network.client() as busy:
        idle.heartbeat("ok")
        done = threading.Event()

        def work() -> None:
            while not done.wait(0.05):
                busy.heartbeat("ok")

        worker = threading.Thread(target=work)
        worker.start()
        assert idle.is_closed_by_server()
        done.set()
        worker.join()
        assert busy.heartbeat("ok") == ErrorCode.NONE


# --- life ---------------------------------------------------------------------------------------------------------


def test_threads_have_kafkas_names_and_all_end() -> None:
    before = {thread.name for thread in threading.enumerate()}
    with Network(handlers=2, num_network_threads=2) as network, network.client() as client:
        client.heartbeat("ok")
        port = network.server.port("PLAINTEXT")
        names = {thread.name for thread in threading.enumerate()} - before
        assert names == {
            f"data-plane-kafka-socket-acceptor-ListenerName(PLAINTEXT)-PLAINTEXT-{port}",
            "data-plane-kafka-network-thread-0-ListenerName(PLAINTEXT)-PLAINTEXT-0",
            "data-plane-kafka-network-thread-0-ListenerName(PLAINTEXT)-PLAINTEXT-1",
            "data-plane-kafka-request-handler-0",
            "data-plane-kafka-request-handler-1",
            "ExpirationReaper-0-Heartbeat",
        }
        assert network.services.threads <= {"data-plane-kafka-request-handler-0", "data-plane-kafka-request-handler-1"}
        network.stop()
        assert client.is_closed_by_server()
        assert {thread.name for thread in threading.enumerate()} <= before
        assert network.server.quotas.total() == 0


def test_requests_in_progress_are_answered_at_shutdown() -> None:
    with Network(handlers=2) as network, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(10)]
        for number, client in enumerate(clients):
            client.send(heartbeat("wait", number))
        for _ in range(2):  # both handlers have theirs: a queue of eight may otherwise be one on its way to ten
            assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        eventually("all were read", lambda: network.channel.request_queue_size() == 8)
        network.stop()
        for number, client in enumerate(clients):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
            assert client.is_closed_by_server()


def test_a_shutdown_under_load_ends() -> None:
    with Network(handlers=2, queued_max_requests=2) as network:
        stop = threading.Event()

        def load() -> None:
            with contextlib.suppress(OSError, EOFError), network.client() as client:
                while not stop.is_set():
                    client.send(heartbeat("ok", 1) * 20)
                    client.read(20)

        workers = [threading.Thread(target=load) for _ in range(8)]
        for worker in workers:
            worker.start()
        eventually("there is load", lambda: network.server.quotas.total() == 8)
        network.stop()
        stop.set()
        for worker in workers:
            worker.join(TIMEOUT_S)
            assert not worker.is_alive()


def test_a_server_that_never_started_ends() -> None:
    network = Network()
    with network.client() as client:  # the kernel accepts already
        network.server.shutdown()
        assert client.is_closed_by_server()


def test_pools_can_be_resized(network: Network, bystander: Client) -> None:
    network.server.resize(5)
    network.pool.resize(3)
    clients = [network.client() for _ in range(10)]
    assert [client.heartbeat("ok") for client in clients] == [ErrorCode.NONE] * 10
    eventually("handlers ended", lambda: sum("handler" in thread.name for thread in threading.enumerate()) == 3)
    network.server.resize(3)
    network.pool.resize(9)
    assert len(network.server.processors()) == 3
    alive = [client for client in clients if not _is_gone(client)]
    assert alive, "connections of the processors that stay are kept"
    assert [client.heartbeat("ok") for client in alive] == [ErrorCode.NONE] * len(alive)
    for client in clients:
        client.sock.close()


def test_limits_follow_the_config(network: Network, bystander: Client) -> None:
    server, config = network.server, network.server._config
    config.max_connections_per_ip = 1
    config.num_network_threads = 2
    server.reconfigure({"listener.name.plaintext.max.connections": "100"})
    assert [len(acceptor.processors) for acceptor in server.acceptors.values()] == [2] * len(server.acceptors)
    with network.client() as second:
        assert second.is_closed_by_server(), "one from this address is enough"


def _is_gone(client: Client) -> bool:
    client.send(heartbeat("ok", 77))
    try:
        return client.receive(HEARTBEAT, HEARTBEAT_VERSION, 77).error_code != ErrorCode.NONE
    except (OSError, EOFError):
        return True


def test_a_taken_port_is_an_error_at_start(network: Network) -> None:
    rows = (ListenerRow("FREE"), ListenerRow("TAKEN", port=network.server.port("PLAINTEXT")))
    with pytest.raises(AddressError, match="the port is taken by another process"):
        Network(listeners=rows)


def test_metrics_tell_of_all_this(network: Network) -> None:
    with network.client() as client:
        client.send(api_versions_request(3, 1, "librdkafka", "2.5"))
        client.read_frame()
        client.heartbeat("error")
        gauges = {
            (row.name, labels): instrument.read()  # type: ignore[union-attr]
            for row, instruments in network.registry.collect()
            if row.kind is catalogue.GAUGE
            for labels, instrument in instruments
        }
        assert gauges["RequestQueueSize", ()] == 0
        assert gauges["RequestQueueCapacity", ()] == 500
        assert gauges["ResponseQueueSize", ("",)] == gauges["ResponseQueueSize", ("2",)] == 0
        assert 0 <= gauges["NetworkProcessorAvgIdlePercent", ()] <= 1
        assert sum(value for (name, _), value in gauges.items() if name == "connection-count") == 1
        software = [labels for name, labels in gauges if name == "connections"]
        assert [labels[:2] for labels in software] == [("librdkafka", "2.5")]

    def count(version: int, request: str) -> int:
        network.registry.collect()  # as a scrape does: requests are counted by the hundred
        return network.registry.meter(catalogue.REQUESTS_PER_SEC, request=request, version=version).count

    eventually("both are counted", lambda: (count(3, "ApiVersions"), count(4, "Heartbeat")) == (1, 1))
    errors = network.registry.meter(catalogue.ERRORS_PER_SEC, request="Heartbeat", error="NOT_COORDINATOR")
    assert errors.count == 1
    assert network.registry.histogram(catalogue.TOTAL_TIME_MS, request="Heartbeat").count == 1
