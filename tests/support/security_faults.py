"""Changes of a secured cluster's certificates, rights, passwords and tokens while it runs, for runs with faults.

    renew certificates   the nodes' files are replaced; every listener shows the new ones soon
    move a certificate   a broker gets another file by its dynamic configuration, and its own back
    revoke a right       a guest's ACL is deleted and given back. A broker that has the change refuses the guest's next
                         request, and a record that was refused is in no log
    change a password    a broker that has the change accepts the new one, and not the old one
    expire a token       a login with a delegation token is accepted until its time is over, and then refused

A broker that is dead, paused or cut off from the controller is not judged.

*Threads*: that of the run; the guest has its own.
"""

from __future__ import annotations

import base64
import contextlib
import random
import ssl
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.client.errors import NodeLoginError
from barnabas.cluster import CONTROLLER_ID, ClusterError, Node
from barnabas.cluster.security import client_settings
from barnabas.cluster.security.client_settings import Login
from barnabas.cluster.security.cluster_security import SSL, ClusterSecurity
from barnabas.cluster.security.node_client import add_users, connect_as
from barnabas.common.clock import SystemClock
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k00_produce as produce_wire
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.eos.reading import read_all
from tests.support.access import Access, create_acls, delete_acl, rules, secured
from tests.support.cluster import BarnabasCluster, addresses
from tests.support.history import Worker
from tests.support.waiting import eventually

GUEST, MOVER = USERS = ("guest", "mover")
TOPIC = "guarded"
PARTITIONS = 3
RIGHT = f"{GUEST} write topic:{TOPIC}"
TIMEOUT_MS = 2_000
TOKEN_LIFE_MS = 3_000
TURN_S = 0.05  # between two requests of the guest
PRODUCE_VERSION = 9
SHOWN = 5
BROKER_RESOURCE = 4
SET, DELETE = 0, 1


def config_of(security: ClusterSecurity | None) -> dict[str, str]:
    """What the nodes' configuration needs for these changes."""
    if security is None:
        return {}
    config = {"delegation.token.secret.key": "the secret of tokens"}
    return {**config, "barnabas.ssl.review.interval.ms": "500"} if security.is_encrypted else config


@dataclass(frozen=True, slots=True)
class SecurityFault:
    """A change, and how it is taken back. Both return when every broker that can be judged has it."""

    description: str
    begin: Callable[[], None]
    end: Callable[[], None]
    nodes: frozenset[int] = frozenset({CONTROLLER_ID})  # those that it needs, from its begin to its end


class SecurityFaults:
    """Causes these changes; `cut_off` returns the brokers that the controller does not reach now."""

    def __init__(
        self,
        cluster: BarnabasCluster,
        access: Access,
        choice: random.Random,
        cut_off: Callable[[], Collection[int]] = tuple,
    ) -> None:
        assert access.security is not None
        self._cluster = cluster
        self._access = access
        self._security = access.security
        self._random = choice
        self._cut_off = cut_off
        self._clock = SystemClock()
        self._guest = Guest(cluster, access)
        self.refusals = 0  # requests that were refused as they must be
        self.kinds: dict[Callable[[], SecurityFault], int] = {self._revoke_right: 3}
        if self._security.is_encrypted:
            self.kinds |= {self._renew_certificates: 2, self._move_certificate: 2}
        if self._security.protocol != SSL:
            self.kinds |= {self._change_password: 2, self._expire_token: 1}

    def prepare(self) -> None:
        """Create the guest's topic and right."""
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=len(self._cluster.brokers))
        with self._admin(self._cluster.brokers[0]) as connection:
            response = connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=10 * TIMEOUT_MS), 7)
        assert not response.topics[0].error_code, response.topics[0].error_message
        self._access.allow(self._cluster.brokers, RIGHT)

    def change(self) -> str:
        """Cause one of these changes and take it back; return its description."""
        return self._do(self._random.choices(list(self.kinds), list(self.kinds.values()))[0])

    def change_everything(self) -> list[str]:
        """Cause each of these changes once, and take it back; return their descriptions."""
        return [self._do(kind) for kind in self.kinds]

    def _do(self, kind: Callable[[], SecurityFault]) -> str:
        fault = kind()
        fault.begin()
        fault.end()
        return fault.description

    def problems(self) -> list[str]:
        """What the guest's records show, once all changes are taken back."""
        content = read_all(self._access.librdkafka(), TOPIC, PARTITIONS)
        return self._guest.problems({p: [r.value for r in records] for p, records in content.items()})

    def secrets(self) -> list[str]:
        """The passwords of users, which must be in no log."""
        return list(self._security.users.values())

    # Certificates

    def _renew_certificates(self) -> SecurityFault:
        return SecurityFault("renew the certificates of all nodes", self._renew, lambda: None)

    def _renew(self) -> None:
        for node in self._cluster.nodes.values():
            serial = _serial(self._security.issue(node).read_bytes())
            for listener, host, port in addresses(self._cluster, node):
                self._await_shown(node, (host, port), serial, f"shows its new certificate on {listener}")

    def _move_certificate(self) -> SecurityFault:
        node = self._random.choice(self._cluster.brokers)
        key = f"listener.name.{self._security.client_listener.lower()}.ssl.keystore.location"

        def begin() -> None:
            moved = self._security.issue(node, f"{node.name}-moved.pem")
            self._alter(node, key, str(moved))
            serial = _serial(moved.read_bytes())
            self._await_shown(node, (node.host, node.port), serial, "shows the certificate of another file")

        def end() -> None:
            self._alter(node, key, None)
            own = _serial((self._security.directory / f"{node.name}.pem").read_bytes())
            self._await_shown(node, (node.host, node.port), own, "shows its own certificate again")

        needed = frozenset({CONTROLLER_ID, node.node_id})  # why the broker, too: it checks its own configuration
        return SecurityFault(f"move the certificate of {node.name}", begin, end, needed)

    def _await_shown(self, node: Node, address: tuple[str, int], serial: int, what: str) -> None:
        self._await(node, what, lambda: shown(*address) == serial)

    def _alter(self, node: Node, key: str, value: str | None) -> None:
        config = AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(node.node_id), configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

        def is_done() -> bool:
            with contextlib.suppress(NodeConnectionError), self._admin(node) as connection:
                answer = connection.send(request, 1).responses[0]
                assert answer.error_code in (0, ErrorCode.REQUEST_TIMED_OUT), answer.error_message
                return not answer.error_code
            return False

        eventually(f"{key} of {node.name} is changed", is_done)

    # Rights

    def _revoke_right(self) -> SecurityFault:
        def begin() -> None:
            self._guest.start_sending()
            (rule,) = rules(RIGHT)
            self._ask_any("the guest's right is deleted", lambda connection: delete_acl(connection, rule))
            for node in self._cluster.brokers:
                self._await(node, "has the deletion", lambda node=node: rule not in self._access.acls(node))  # type: ignore[misc]
                if self._can_be_judged(node):
                    self._refuses(node)

        def end() -> None:
            self._ask_any("the guest has the right again", lambda connection: create_acls(connection, RIGHT))
            for node in self._cluster.brokers:
                self._await(node, "accepts the guest again", lambda node=node: not self._guest.is_refused(node))  # type: ignore[misc]
            self._guest.stop_sending()

        return SecurityFault("revoke a right", begin, end)

    def _refuses(self, node: Node) -> None:
        """A broker that knows of the deletion refuses the next request."""
        try:
            is_refused = self._guest.is_refused(node)
        except NodeConnectionError:
            return
        assert is_refused or not self._can_be_judged(node), f"{node.name} has the deletion, and accepts a record"
        self.refusals += 1

    # Logins

    def _change_password(self) -> SecurityFault:
        old, new = self._security.users[MOVER], f"another {self._random.randrange(1 << 32)}"

        def change(before: str, after: str) -> None:
            self._set_password(after)
            for node in self._cluster.brokers:
                self._await(node, "accepts the new password", lambda node=node: self._logs_in(node, after))  # type: ignore[misc]
                is_accepted = self._logs_in(node, before) if self._can_be_judged(node) else None
                assert not is_accepted, f"{node.name} accepts the new password and the old one"
                self.refusals += is_accepted is False

        return SecurityFault("change a password", lambda: change(old, new), lambda: change(new, old))

    def _set_password(self, password: str) -> None:
        connect = connect_as(self._security.node_login(), self._clock)

        def is_done() -> bool:
            for node in self._cluster.brokers:
                if self._can_be_judged(node):
                    try:
                        add_users(connect, node, {MOVER: password})
                        return True
                    except ClusterError:
                        continue
            return False

        eventually("the password is changed", is_done)

    def _logs_in(self, node: Node, password: str) -> bool | None:
        """Whether a login is accepted; None if the broker does not answer."""
        return self._is_accepted(node, client_settings.java(self._security.login(MOVER)._replace(password=password)))

    def _expire_token(self) -> SecurityFault:
        made: list[tuple[dict[str, str], int]] = []

        def begin() -> None:
            self._ask_any("a token is made", lambda connection: self._make_token(connection, made), MOVER)
            (settings, expires_ms) = made[0]
            for node in self._cluster.brokers:
                self._await(
                    node,
                    "accepts the token",
                    lambda node=node: self._clock.wall_ms() >= expires_ms or self._is_accepted(node, settings),  # type: ignore[misc]
                )

        def end() -> None:
            (settings, expires_ms) = made[0]
            eventually("the token's time is over", lambda: self._clock.wall_ms() > expires_ms)
            for node in self._cluster.brokers:
                is_accepted = self._is_accepted(node, settings) if self._can_be_judged(node) else None
                assert not is_accepted, f"{node.name} accepts an expired token"
                self.refusals += is_accepted is False

        return SecurityFault("expire a token", begin, end)

    def _make_token(self, connection: NodeConnection, made: list[tuple[dict[str, str], int]]) -> bool:
        response = connection.send(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=TOKEN_LIFE_MS), 3)
        if response.error_code:
            return False
        token = self._security.login(MOVER)._replace(
            user=response.token_id, password=base64.b64encode(response.hmac).decode()
        )
        made.append((with_token(token), response.expiry_timestamp_ms))
        return True

    def _is_accepted(self, node: Node, settings: dict[str, str]) -> bool | None:
        connection = NodeConnection(node.host, node.port, timeout_ms=TIMEOUT_MS, security=secured(settings))
        try:
            connection.connect()
        except NodeLoginError:
            return False
        except NodeConnectionError:
            return None
        else:
            return True
        finally:
            connection.close()

    # Nodes

    def _admin(self, node: Node) -> NodeConnection:
        return self._access.connect()(node.host, node.port, timeout_ms=10 * TIMEOUT_MS)

    def _can_be_judged(self, node: Node) -> bool:
        return node.is_running and not node.paused and node.node_id not in self._cut_off()

    def _await(self, node: Node, what: str, probe: Callable[[], object]) -> None:
        """Wait until the probe is true of a node, if it can be judged."""

        def is_so() -> bool:
            try:
                return not self._can_be_judged(node) or bool(probe())
            except OSError:
                return False

        eventually(f"{node.name} {what}", is_so)

    def _ask_any(self, what: str, act: Callable[[NodeConnection], bool], user: str = "") -> None:
        """Let any broker carry out a request, with retries."""

        def is_done() -> bool:
            for node in self._cluster.brokers:
                if self._can_be_judged(node):
                    try:
                        with self._access.connect(*filter(None, [user]))(
                            node.host, node.port, timeout_ms=10 * TIMEOUT_MS
                        ) as connection:
                            if act(connection):
                                return True
                    except NodeConnectionError:
                        continue
            return False

        eventually(what, is_done)


class Guest:
    """Sends numbered records while its right is taken away and given back, and knows what became of them."""

    def __init__(self, cluster: BarnabasCluster, access: Access) -> None:
        self._cluster = cluster
        self._access = access
        self._sender: GuestSender | None = None
        self._lock = threading.Lock()
        self._number = 0  # guarded by: _lock
        self._accepted: dict[int, set[int]] = {partition: set() for partition in range(PARTITIONS)}  # likewise
        self._refused: dict[int, set[int]] = {partition: set() for partition in range(PARTITIONS)}  # likewise

    def start_sending(self) -> None:
        """Send to all brokers, again and again, on another thread."""
        self._sender = GuestSender(self, self._cluster.brokers)
        self._sender.__enter__()

    def stop_sending(self) -> None:
        """End that."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.stop()

    def connection(self, node: Node) -> NodeConnection:
        """A new connection of the guest."""
        return self._access.connect(GUEST)(node.host, node.port, timeout_ms=TIMEOUT_MS)

    def is_refused(self, node: Node) -> bool:
        """Send a record to a broker, and return whether it is refused; raises NodeConnectionError."""
        with self.connection(node) as connection:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED in self.send(connection)

    def send(self, connection: NodeConnection) -> set[int]:
        """Send a record to each partition, and return the codes of the answers; raises NodeConnectionError."""
        with self._lock:
            number, self._number = self._number, self._number + 1
        data = [
            produce_wire.PartitionProduceData(index=partition, records=memoryview(bytearray(self._batch(number))))
            for partition in range(PARTITIONS)
        ]
        topic = produce_wire.TopicProduceData(name=TOPIC, topic_id=ZERO_UUID, partition_data=data)
        request = produce_wire.ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        answers = connection.send(request, PRODUCE_VERSION).responses[0].partition_responses
        with self._lock:
            for answer in answers:
                if answer.error_code == ErrorCode.NONE:
                    self._accepted[answer.index].add(number)
                elif answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self._refused[answer.index].add(number)
        return {answer.error_code for answer in answers}

    def problems(self, content: Mapping[int, Sequence[str]]) -> list[str]:
        """Compare with the values in the log: what was accepted is there, what was refused is not."""
        found = []
        for partition in range(PARTITIONS):
            numbers = sorted(int(value) for value in content[partition])
            lost = self._accepted[partition] - set(numbers)
            invented = self._refused[partition] & set(numbers)
            found += [f"{TOPIC}-{partition}: accepted records are lost: {sorted(lost)[:SHOWN]}"] * bool(lost)
            found += [f"{TOPIC}-{partition}: refused records are there: {sorted(invented)[:SHOWN]}"] * bool(invented)
        return found

    def _batch(self, number: int) -> bytes:
        return build_batch([SimpleRecord(SystemClock().wall_ms(), None, str(number).encode())])


class GuestSender(Worker):
    """Lets the guest send to one broker after the other."""

    def __init__(self, guest: Guest, brokers: Sequence[Node]) -> None:
        super().__init__("guest")
        self._guest = guest
        self._connections = [guest.connection(node) for node in brokers]  # owner: the worker's thread

    def _turn(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(NodeConnectionError):
                self._guest.send(connection)
            self._stopping.wait(TURN_S)

    def _close(self) -> None:
        for connection in self._connections:
            connection.close()


def with_token(login: Login) -> dict[str, str]:
    """The settings of a Java client that logs in with a delegation token."""
    settings = client_settings.java(login)
    jaas = settings["sasl.jaas.config"].removesuffix(";")
    return {**settings, "sasl.jaas.config": f'{jaas} tokenauth="true";'}


def _serial(pem: bytes) -> int:
    """The serial number of the first certificate."""
    return x509.load_pem_x509_certificates(pem)[0].serial_number


def shown(host: str, port: int) -> int:
    """The serial number of the certificate that a listener shows now; raises OSError."""
    return _serial(ssl.get_server_certificate((host, port), timeout=TIMEOUT_MS / 1000).encode())
