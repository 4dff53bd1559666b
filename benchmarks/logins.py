"""`python -m benchmarks.logins`: what floods of clients that never log in cost those that have.

A well-behaved client (a closed loop of small produce requests, 32 connections x 2 in flight) runs beside 2,000 new
connections a second, each of which begins a TLS handshake or tries a wrong password. It has logged in before. On a
small machine the flood's own program takes CPU time from both. So the same flood is sent to a server that does no work,
too (`sink`), and the rates are compared: in turn, several times. The flood comes from 200 addresses of one network.
Meanwhile a client of another network logs in again and again; how long it takes is shown.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

import click
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa
from rich.console import Console
from rich.table import Table

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.client.security import ClientSecurity
from barnabas.cluster import HOST, LocalCluster, Node, free_ports
from barnabas.common.clock import SystemClock
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from benchmarks.bench import create_topic
from benchmarks.harness import directory
from benchmarks.load.pressure import CLIENT_ID, Aggressor, Offered, Pressure, produce_frame
from benchmarks.overload import PARTITIONS, SETTINGS, WORKING
from tests.support.certificates import Authority
from tests.support.processes import resident_bytes

USER, PASSWORD = "alice", "secret"
JAAS: Final = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
SCRAM_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
CALM_MS: Final = 500
PROBE_INTERVAL_S: Final = 0.25
MIB: Final = 1 << 20


class Flood(NamedTuple):
    """What each of the strangers sends, and to which listener."""

    title: str
    listener: str
    frames: Sequence[bytes]
    are_frames: bool = True


def handshake_frame(mechanism: str) -> bytes:
    """A client's choice of a mechanism."""
    return encode_request(RequestHeader(17, 1, 0, CLIENT_ID), SaslHandshakeRequest(mechanism=mechanism))


def token_frame(token: bytes) -> bytes:
    """A mechanism's message, in a version that ends with it."""
    return encode_request(RequestHeader(36, 0, 0, CLIENT_ID), SaslAuthenticateRequest(auth_bytes=token))


def plain_login(password: str) -> list[bytes]:
    """The frames of a login by PLAIN."""
    return [handshake_frame("PLAIN"), token_frame(f"\0{USER}\0{password}".encode())]


def client_hello() -> bytes:
    """A client's first TLS message."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


FLOODS: Final = {
    "plain": Flood("wrong passwords by PLAIN", "LOGINS", plain_login("wrong")),
    "scram": Flood(
        "wrong passwords by SCRAM-SHA-256",
        "LOGINS",
        [handshake_frame("SCRAM-SHA-256"), token_frame(b"n,,n=bob,r=abcdefghijklmnop"), token_frame(b"c=biws,r=")],
    ),
    "handshakes": Flood("TLS handshakes, with an ECDSA key", "ECDSA", [client_hello()], are_frames=False),
    "handshakes-rsa": Flood("TLS handshakes, with an RSA key of 2048 bits", "RSA", [client_hello()], are_frames=False),
}


class Prober:
    """Connects and logs in again and again, from an address of its own, and notes how long that takes."""

    def __init__(self, port: int, security: ClientSecurity) -> None:
        self._port = port
        self._security = security
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._clock = SystemClock()
        self.took_ms: list[float] = []
        self.failed = 0

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(PROBE_INTERVAL_S):
            began_ns = self._clock.monotonic_ns()
            try:
                with NodeConnection(HOST, self._port, security=self._security) as connection:
                    connection.send(ApiVersionsRequest(client_software_name="probe", client_software_version="1"), 3)
            except NodeConnectionError:
                self.failed += 1
            else:
                self.took_ms.append((self._clock.monotonic_ns() - began_ns) / 1e6)


class Bench:
    """A running broker, and the program that loads it."""

    def __init__(self, ports: dict[str, int], pid: int, pressure: Pressure, measure_ms: int, ca: str) -> None:
        self.ports = ports
        self.pid = pid
        self.pressure = pressure
        self.measure_ms = measure_ms
        self._ca = ca
        self._topic = "beside"
        create_topic(AdminClient({"bootstrap.servers": f"{HOST}:{ports['PLAINTEXT']}"}), self._topic, PARTITIONS)

    def work(self, listener: str) -> Offered:
        """Run the well-behaved client, and return its rate and latency."""
        with self.working(listener) as worker:
            return worker.offered()

    def working(self, listener: str) -> AbstractContextManager[Aggressor]:
        """Run the well-behaved client; it has logged in, if the listener asks for that."""
        now_ms = SystemClock().wall_ms()
        frames = [produce_frame(now_ms, self._topic, number, 100) for number in range(PARTITIONS)]
        login = plain_login(PASSWORD) if listener == "LOGINS" else ()
        port = self.ports["LOGINS" if login else "PLAINTEXT"]
        return self.pressure.offering(port, *WORKING, frames, self.measure_ms, CALM_MS, login)

    def security(self, listener: str) -> ClientSecurity:
        """Return how a client with the right password connects."""
        from barnabas.client.client_properties import ClientProperties

        if listener == "LOGINS":
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            jaas = f'{module} required username="{USER}" password="{PASSWORD}";'
            properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
        else:
            properties = {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self._ca,
            }
        found = ClientProperties(properties, SystemClock()).security()
        assert found is not None
        return found


def measure(bench: Bench, flood: Flood, per_second: int, rounds: int) -> dict[str, str]:
    """Measure the well-behaved client alone, beside the flood, and beside the same flood to a sink; in turn."""
    rates: dict[str, list[float]] = {"alone": [], "beside the sink's flood": [], "beside the flood": []}
    p99: dict[str, list[float]] = {name: [] for name in rates}
    took_ms: list[float] = []
    failed = 0
    served: list[str] = []
    duration_ms = bench.measure_ms + 2 * CALM_MS
    before = peak = resident_bytes(bench.pid)

    def note(name: str, offered: Offered) -> None:
        rates[name].append(offered.requests_per_second)
        p99[name].append(offered.p99_ms)

    def flooded(name: str, port: int) -> None:
        with (
            bench.working(flood.listener) as worker,
            bench.pressure.strangers(
                port, per_second, duration_ms, flood.frames, are_frames=flood.are_frames
            ) as running,
        ):
            note(name, worker.offered())
            result = running.result()
        served.append(
            f"{name}: {result['requests'] * 1000 / duration_ms:.0f}/s of {result['started'] * 1000 / duration_ms:.0f}"
        )

    (sink_port,) = free_ports(1)
    with bench.pressure.sink(sink_port) as sink:
        for _ in range(rounds):
            note("alone", bench.work(flood.listener))
            flooded("beside the sink's flood", sink_port)
            port = bench.ports[flood.listener]
            with Prober(port, bench.security(flood.listener)) as prober:
                flooded("beside the flood", port)
            took_ms += prober.took_ms
            failed += prober.failed
            peak = max(peak, resident_bytes(bench.pid))
        sink.finish()
    medians = {name: statistics.median(values) for name, values in rates.items()}
    alone, sunk, beside = medians.values()
    return {
        **{f"requests/s {name}": f"{rate:,.0f}" for name, rate in medians.items()},
        "rate kept, against the sink": f"{beside / sunk:.2f}",
        "rate kept, against nothing": f"{beside / alone:.2f}",
        "p99": ", ".join(f"{statistics.median(values):.1f}" for values in p99.values()) + " ms",
        "completed": "; ".join(served[-2:]),
        "an honest login": f"{statistics.median(took_ms or [0]):.0f} ms, at most {max(took_ms, default=0):.0f} ms",
        "honest logins that failed": f"{failed}",
        "memory grew by": f"{(peak - before) / MIB:.0f} MiB",
    }


class SecuredCluster(LocalCluster):
    """A cluster whose brokers have listeners that the controller does not have."""

    def properties(self, node: Node) -> dict[str, str]:
        """Return the server properties of a node."""
        found = super().properties(node)
        return (
            found if node.role == "broker" else {k: v for k, v in found.items() if not k.startswith("listener.name.")}
        )


@contextlib.contextmanager
def broker(where: Path) -> Iterator[tuple[dict[str, int], int, str]]:
    """Run a controller and a broker with a listener for each flood. Yields the ports, the process id, the authority."""
    authority = Authority("Benchmark")
    ca = os.fspath(authority.write_pem(where / "ca.pem"))
    names = ("PLAINTEXT", "LOGINS", "ECDSA", "RSA")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    protocols = {"PLAINTEXT": "PLAINTEXT", "LOGINS": "SASL_PLAINTEXT", "ECDSA": "SSL", "RSA": "SSL"}
    config = {
        **SETTINGS,
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.logins.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.logins.plain.sasl.jaas.config": JAAS,
        "listener.name.logins.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
    }
    keys = {"ecdsa": None, "rsa": rsa.generate_private_key(65537, 2048)}
    for name, key in keys.items():
        prefix = f"listener.name.{name}"
        config[f"{prefix}.ssl.keystore.type"] = "PEM"
        config[f"{prefix}.ssl.keystore.location"] = os.fspath(
            authority.issue(name, key=key).write_pem(where / f"{name}.pem")
        )
    with SecuredCluster(where / "cluster", broker_count=1, first_port=ports["PLAINTEXT"], config=config) as cluster:
        child = cluster.brokers[0].child
        assert child is not None
        yield ports, child.pid, ca


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(FLOODS)), help="Send only this flood.")
@click.option("--measure-ms", default=4000, show_default=True, help="How long each rate is measured.")
@click.option("--per-second", default=2000, show_default=True, help="New connections a second.")
@click.option("--rounds", default=3, show_default=True, help="How often each is measured, in turn.")
def main(only: tuple[str, ...], measure_ms: int, per_second: int, rounds: int) -> None:
    """Measure what clients that never log in cost those that have."""
    table = Table("", *(only or FLOODS), title=f"{per_second} strangers a second", title_justify="left")
    columns: list[dict[str, str]] = []
    console = Console(stderr=True)
    with directory("logins") as where, broker(where) as (ports, pid, ca):
        bench = Bench(ports, pid, Pressure(where), measure_ms, ca)
        for _ in range(2):
            bench.work("PLAINTEXT")
        for name in only or FLOODS:
            columns.append(measure(bench, FLOODS[name], per_second, rounds))
            console.print(f"{name}: {columns[-1]}", highlight=False)
    for figure in columns[0]:
        table.add_row(figure, *(column[figure] for column in columns))
    Console(width=int(os.environ.get("COLUMNS", "160"))).print(table)


if __name__ == "__main__":
    main()
