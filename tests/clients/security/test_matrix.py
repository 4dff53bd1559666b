"""Every client library with every way to prove who it is: right credentials, wrong ones, and sessions that end."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from barnabas.common.clock import SystemClock
from tests.clients.security.libraries import AioKafka, KafkaPython, Kcat, Library, Librdkafka, RefusedError
from tests.clients.security.login import Login
from tests.clients.security.matrix import CELLS, ENDS, IS_CLOSED, ROWS, UNSIGNED, WRONG, Cell
from tests.clients.security.matrix_cluster import SESSION_MS, MatrixCluster
from tests.clients.security.programs import ProgramLibrary, go, java, node
from tests.support.certificates import Authority
from tests.support.sasl_cluster import ALICE
from tests.support.waiting import eventually

TIMEOUT_S = 30
SESSIONS_MS = 2 * SESSION_MS + 1_500
TOKEN_S = 4.0  # librdkafka presents tokens that are up to two seconds old
TOKENS = ("right", "expired", "forged", "unsigned", "unsigned-expired", "session")

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MatrixCluster]:
    """The cluster, with a topic for each library and its sessions, and the files with credentials."""
    directory = tmp_path_factory.mktemp("matrix")
    with MatrixCluster(directory, tuple(ROWS)) as running:
        admin = AdminClient(librdkafka_settings(running))
        names = [*ROWS, *(f"sessions-{name}-{mechanism}" for name in ROWS for mechanism in SESSIONS)]
        for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            created.result(TIMEOUT_S)
        write_credentials(running)
        yield running


def librdkafka_settings(cluster: MatrixCluster) -> dict[str, object]:
    login = right(cluster, Cell("confluent-kafka", "PLAIN", "PASSWORDS"))
    return {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.username": login.user,
        "sasl.password": login.password,
    }


def write_credentials(cluster: MatrixCluster) -> None:
    provider, user = cluster.provider, ALICE[0]
    texts = {
        "right": provider.token(user),
        "expired": provider.token(user, -10),
        "forged": provider.token(user, is_forged=True),
        "unsigned": unsigned(3600),
        "unsigned-expired": unsigned(-10),
        "session": provider.token(user, TOKEN_S),
    }
    for name, text in texts.items():
        token_file(cluster, name).write_text(text)
    authority: Authority = cluster.authority
    authority.issue(user, names=()).write_pem(cluster.directory / "right.pem")
    authority.issue(user, names=(), from_days=-2, to_days=-1).write_pem(cluster.directory / "expired.pem")


def token_file(cluster: MatrixCluster, name: str) -> Path:
    return cluster.directory / f"{name}.jwt"


def unsigned(lifetime_s: float) -> str:
    now_s = SystemClock().wall_ms() / 1000
    claims = {"sub": ALICE[0], "iat": min(now_s, now_s + lifetime_s) - 1, "exp": now_s + lifetime_s}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in ({"alg": "none"}, claims))
    return ".".join(part.rstrip("=") for part in parts) + "."


class Libraries:
    """The libraries that the tests use, each made at its first use."""

    def __init__(self, cluster: MatrixCluster) -> None:
        self._cluster = cluster
        self._made: dict[str, Library] = {}

    def __getitem__(self, name: str) -> Library:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def close(self) -> None:
        for library in self._made.values():
            library.close()

    def _make(self, name: str) -> Library:
        directory = self._cluster.directory / name
        match name:
            case "java":
                addresses = [token_file(self._cluster, token).as_uri() for token in TOKENS]
                return ProgramLibrary(java(addresses), directory, is_java=True)
            case "franz-go":
                return ProgramLibrary(go(), directory)
            case "kafkajs":
                return ProgramLibrary(node(), directory)
        return {"confluent-kafka": Librdkafka, "kafka-python": KafkaPython, "aiokafka": AioKafka, "kcat": Kcat}[name]()


@pytest.fixture(scope="module")
def libraries(cluster: MatrixCluster) -> Iterator[Libraries]:
    made = Libraries(cluster)
    yield made
    made.close()


def right(cluster: MatrixCluster, cell: Cell) -> Login:
    """Return how to connect with the right credentials."""
    if cell.method == "SSL":
        return cluster.login(cell.library, cell.listener, "")._replace(certificate=cluster.directory / "right.pem")
    mechanism = "OAUTHBEARER" if cell.method == UNSIGNED else cell.method
    user, password = ALICE
    login = cluster.login(cell.library, cell.listener, mechanism)._replace(user=user)
    if cell.method == UNSIGNED:
        return login._replace(token=token_file(cluster, "unsigned"), unsigned_claim="sub")
    if mechanism == "OAUTHBEARER":
        return login._replace(token=token_file(cluster, "right"))
    return login._replace(password=password)


def wrong(cluster: MatrixCluster, cell: Cell, what: str) -> Login:
    """Return the same with wrong credentials."""
    login = right(cluster, cell)._replace(patience_ms=500)
    if cell.method == "SSL":
        return login._replace(certificate=None if what == "missing" else cluster.directory / "expired.pem")
    if cell.method == UNSIGNED:
        return login._replace(token=token_file(cluster, "unsigned-expired"), unsigned_claim="other")
    if cell.method == "OAUTHBEARER":
        return login._replace(token=token_file(cluster, what))
    return login._replace(password="wr0ng-secret")


def parameters(*, is_wrong: bool) -> list[object]:
    found = []
    for cell in CELLS:
        for what in WRONG[cell.method] if is_wrong else ("right",):
            values = (cell, what) if is_wrong else (cell,)
            found.append(pytest.param(*values, marks=pytest.mark.needs(*cell.row.needs), id=f"{cell}-{what}"))
    return found


@pytest.mark.parametrize("cell", parameters(is_wrong=False))
def test_right_credentials(cluster: MatrixCluster, libraries: Libraries, cell: Cell) -> None:
    value = libraries[cell.library].round(right(cluster, cell), cell.library)
    assert value == f"from {cell.library}"


@pytest.mark.parametrize(("cell", "what"), parameters(is_wrong=True))
def test_wrong_credentials(cluster: MatrixCluster, libraries: Libraries, cell: Cell, what: str) -> None:
    login = wrong(cluster, cell, what)
    before = len(cluster.log())
    with pytest.raises(RefusedError, match=cell.error):
        libraries[cell.library].round(login, cell.library)
    reason = r"SSL handshake failed: .*\)" if cell.method == "SSL" else rf".*\) by {login.mechanism}"
    line = re.compile(rf"Failed authentication with /?127\.0\.0\.1 \(channelId=\S+\) \({reason} ")
    eventually("a line in the log", lambda: line.search(cluster.log(), before))


SESSIONS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module", params=SESSIONS)
def sessions(
    request: pytest.FixtureRequest, cluster: MatrixCluster, libraries: Libraries
) -> dict[str, tuple[int, dict[str, float]]]:
    """What all libraries at once saw in two sessions or more: records acknowledged, and counts of the broker."""
    mechanism = str(request.param)
    names = [name for name, row in ROWS.items() if mechanism not in row.cannot and has_programs(row.needs)]
    over = threading.Event()

    def renew() -> None:
        """Replace the token again and again, as a provider's agent does."""
        path = token_file(cluster, "session")
        new = path.with_suffix(".new")
        new.write_text(cluster.provider.token(ALICE[0], TOKEN_S))
        new.replace(path)

    def keep_renewing() -> None:
        while not over.wait(TOKEN_S / 8):
            renew()

    def run(name: str) -> int:
        """Return how many records were acknowledged, -1 for a client that ended."""
        user, password = ALICE
        login = cluster.login(name, "SESSIONS", mechanism)._replace(user=user, password=password)
        login = login._replace(token=token_file(cluster, "session"))
        try:
            return libraries[name].session(login, f"sessions-{name}-{mechanism}", SESSIONS_MS)
        except RefusedError as error:
            if ROWS[name].session_end == ENDS and "All broker connections are down" in str(error):
                return -1
            raise AssertionError(f"{name}: {error}") from error

    before = {name: cluster.counts(name) for name in names}
    for name in names:
        assert libraries[name]  # its program lives as long as the thread that makes it: this one
    renew()
    renewing = threading.Thread(target=keep_renewing)
    renewing.start()
    try:
        with ThreadPoolExecutor(len(names)) as pool:
            sent = dict(zip(names, pool.map(run, names), strict=True))
    finally:
        over.set()
        renewing.join()
    after = {name: cluster.counts(name) for name in names}
    return {name: (sent[name], {key: after[name][key] - before[name][key] for key in after[name]}) for name in names}


def has_programs(names: tuple[str, ...]) -> bool:
    from tests.support.programs import is_there

    return all(map(is_there, names))


@pytest.mark.parametrize(
    "library", [pytest.param(name, marks=pytest.mark.needs(*row.needs)) for name, row in ROWS.items()]
)
def test_sessions_that_end(
    cluster: MatrixCluster,
    sessions: dict[str, tuple[int, dict[str, float]]],
    library: str,
    request: pytest.FixtureRequest,
) -> None:
    mechanism = request.node.callspec.params["sessions"]
    if mechanism in ROWS[library].cannot:
        assert library not in sessions
        return
    sent, counts = sessions[library]
    if ROWS[library].session_end == ENDS:
        assert sent == -1
        assert counts["successful_reauthentication"] == 0
        assert counts["expired_connections_killed_count"] == 1
        return
    admin = AdminClient(librdkafka_settings(cluster))
    partition = TopicPartition(f"sessions-{library}-{mechanism}", 0)
    (end,) = admin.list_offsets({partition: OffsetSpec.latest()}).values()
    assert end.result(TIMEOUT_S).offset >= sent > 10
    if ROWS[library].session_end == IS_CLOSED:
        assert counts["successful_reauthentication"] == 0
        assert counts["expired_connections_killed_count"] >= 1
        assert counts["successful_authentication"] >= 2  # it has connected again
    else:
        assert counts["successful_reauthentication"] >= (1 if mechanism == "OAUTHBEARER" else 2)
        assert counts["expired_connections_killed_count"] == 0


def test_nodes_log_in_with_tokens_of_the_provider(cluster: MatrixCluster) -> None:
    assert {"/jwks", "/token"} <= set(cluster.provider.requests)


def test_no_secret_is_in_a_log(cluster: MatrixCluster) -> None:
    for name in ("broker", "controller"):
        for secret in (ALICE[1], "wr0ng-secret", "node's secret", "eyJ"):
            assert secret not in cluster.log(name)
