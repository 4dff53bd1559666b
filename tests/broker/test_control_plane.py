"""The controller's pushes have their own queue and handler, so a broker whose handlers are blocked still gets them."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from tests.support.broker.network import TIMEOUT_S, UPDATE_METADATA, Client, ListenerRow, Network, heartbeat

CONTROL_THREAD = "control-plane-kafka-request-handler-0"


def push(client: Client) -> int:
    """Send an UpdateMetadata; return the error code of its response."""
    client.send(encode_request(RequestHeader(UPDATE_METADATA, 8, 7, "controller"), UpdateMetadataRequest()))
    code: int = client.receive(UPDATE_METADATA, 8, 7).error_code
    return code


def test_a_push_does_not_wait_behind_clients_requests() -> None:
    with Network(handlers=2, queued_max_requests=1, control_max_requests=20, num_network_threads=1) as network:
        held = [network.client() for _ in range(2)]
        for client in held:
            client.send(heartbeat("wait"))
            assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        with network.client() as controller:
            for _ in range(3):
                assert push(controller) == ErrorCode.NONE
        assert CONTROL_THREAD in network.services.threads
        network.services.gate.set()
        for client in held:
            client.sock.close()


def test_clients_requests_are_never_carried_out_there() -> None:
    with Network(handlers=1, control_max_requests=20) as network, network.client() as client:
        assert client.heartbeat("ok") == ErrorCode.NONE
        # A push with a request behind it is an ordinary run: the clients' handlers carry it out.
        run = encode_request(RequestHeader(UPDATE_METADATA, 8, 7, "x"), UpdateMetadataRequest()) + heartbeat("ok", 8)
        client.send(run)
        assert client.receive(UPDATE_METADATA, 8, 7).error_code == ErrorCode.NONE
        client.read_frame()
        assert CONTROL_THREAD not in network.services.threads


def test_a_listener_for_clients_does_not_use_it() -> None:
    listeners = (ListenerRow(), ListenerRow("INTERNAL"))
    with Network(handlers=1, control_max_requests=20, listeners=listeners, inter_broker_listener="INTERNAL") as network:
        with network.client() as client:
            assert push(client) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert network.services.threads == set()
        with network.client("INTERNAL") as node:
            assert push(node) == ErrorCode.NONE
        assert network.services.threads == {CONTROL_THREAD}


def test_a_single_listener_serves_nodes_too() -> None:
    with (
        Network(handlers=1, listeners=(ListenerRow("ONLY"),), inter_broker_listener="ONLY") as network,
        network.client("ONLY") as client,
    ):
        assert push(client) == ErrorCode.NONE
