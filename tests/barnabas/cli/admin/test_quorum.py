"""`barnabas quorum`: of the session's cluster, which has one controller, and of a quorum with dynamic voters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.errors import UserError
from barnabas.cluster import free_ports
from barnabas.common.ids import uuid_to_string
from tests.barnabas.cli.conftest import Barnabas, Outcome
from tests.controller.raft.client.servers import RaftServers, raft_servers
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[RaftServers]:
    """Voters 1 and 2, and controller 3, which observes."""
    with raft_servers(tmp_path, 2, kraft_version=1, observers=1) as servers:
        servers.append("a")  # the leader knows its high watermark
        yield servers


def addresses(quorum: RaftServers) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in quorum.ports.values())


def test_a_broker_asks_the_controller(barnabas: Barnabas, cluster: BarnabasCluster, bootstrap: str) -> None:
    outcome = barnabas("quorum", "status")
    assert (outcome.code, outcome.err) == (0, "")
    first, second, *_ = outcome.out.splitlines()
    header, row, *followers = [line for line in outcome.out.splitlines() if "\t" in line]
    assert first.startswith("Controller 100 leads in epoch 1, since ")
    assert second == "It is the only voter: without it nothing is decided."
    assert header.split("\t")[:5] == ["id", "role", "address", "log_end", "behind"]
    assert row.split("\t")[:2] == ["100", "leader"]
    assert row.split("\t")[4] == "0"
    brokers = [str(broker.node_id) for broker in cluster.brokers]
    assert [line.split("\t")[:2] for line in followers] == [[broker, "observer"] for broker in brokers]


def test_the_controller_is_asked_itself(barnabas: Barnabas, cluster: BarnabasCluster) -> None:
    controller = f"{cluster.controller.host}:{cluster.controller.port}"
    outcome = barnabas("quorum", "status", "--json", "--bootstrap-controller", controller)
    found = json.loads(outcome.out)
    assert (outcome.code, found["leader"]) == (0, 100)
    assert [member["id"] for member in found["observers"]] == [broker.node_id for broker in cluster.brokers]
    assert [member["role"] for member in found["voters"]] == ["leader"]


def test_static_voters_do_not_change(barnabas: Barnabas, bootstrap: str) -> None:
    outcome = barnabas("quorum", "remove", "100")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("barnabas: the voters are static")
    assert outcome.err.count("\n") == 1


def test_any_controller_leads_to_the_leader(barnabas: Barnabas, quorum: RaftServers) -> None:
    leader = quorum.leader().id
    for port in quorum.ports.values():
        outcome = barnabas("quorum", "status", "--json", "--bootstrap-controller", f"127.0.0.1:{port}")
        if outcome.code:  # this controller does not know the others' addresses: they are not registered in this test
            assert "NOT_LEADER_OR_FOLLOWER" in outcome.err
        else:
            assert json.loads(outcome.out)["leader"] == leader
    assert barnabas("quorum", "status", "--bootstrap-controller", addresses(quorum)).code == 0


def test_voters_are_added_and_removed(barnabas: Barnabas, quorum: RaftServers, tmp_path: Path) -> None:
    to = ("--bootstrap-controller", addresses(quorum))
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=controller\nnode.id=3\nlog.dirs={tmp_path}/3\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:{quorum.ports[3]}\ncontroller.quorum.bootstrap.servers={addresses(quorum)}\n"
    )

    def voters() -> list[int]:
        found = json.loads(barnabas("quorum", "status", "--json", *to).out)
        return sorted(member["id"] for member in found["voters"])

    def succeeds(*arguments: str) -> Outcome:
        """Try until the replica has caught up, and the change before is committed."""
        return eventually("the change", lambda: next((o for o in [barnabas(*arguments, *to)] if o.code == 0), None))

    added = succeeds("quorum", "add", str(file))
    directory = uuid_to_string(quorum.running[3].key.directory_id)
    address = f"127.0.0.1:{quorum.ports[3]}"
    assert added.out == f"controller 3 with directory {directory} at {address} votes now\n"
    assert voters() == [1, 2, 3]
    again = barnabas("quorum", "add", str(file), *to)
    assert (again.code, again.err.count("\n")) == (1, 1)
    assert again.err.startswith("barnabas: controller 3 is a voter already")
    removed = succeeds("quorum", "remove", "3")
    assert removed.out == f"controller 3 with directory {directory} does not vote any more\n"
    assert voters() == [1, 2]
    for arguments, said in (
        (("3",), "controller 3 is no voter: see barnabas quorum status"),
        (("3", "--directory-id", directory), f"controller 3 with directory {directory} is no voter, or the only one"),
        (("3", "--directory-id", "x"), "'x' is no directory id"),
    ):
        refused = barnabas("quorum", "remove", *arguments, *to)
        assert (refused.code, refused.err.count("\n")) == (2 if "is no directory id" in said else 1, 1)
        assert refused.err.startswith(f"barnabas: {said}")


def test_nobody_answers(barnabas: Barnabas) -> None:
    (port,) = free_ports(1)
    outcome = barnabas("quorum", "status", "--bootstrap-controller", f"127.0.0.1:{port}")
    assert outcome.code == 1
    assert outcome.err.startswith(f"barnabas: no controller answers at 127.0.0.1:{port}")


@pytest.mark.parametrize("what", ["missing directory", "no address"])
def test_a_controller_that_cannot_be_added(barnabas: Barnabas, tmp_path: Path, what: str) -> None:
    file, data = tmp_path / "server.properties", tmp_path / "data"
    host = "" if what == "no address" else "127.0.0.1"
    file.write_text(
        f"process.roles=controller\nnode.id=103\nlog.dirs={data}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://{host}:9093\ncontroller.quorum.bootstrap.servers=127.0.0.1:9099\n"
    )
    if what == "no address":
        data.mkdir()
        (data / "meta.properties").write_text(
            "version=1\ncluster.id=c\nnode.id=103\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
        )
    outcome = barnabas("quorum", "add", str(file), "--bootstrap-controller", "127.0.0.1:9099")
    assert (outcome.code, outcome.out) == (1, "")
    said = "advertised.listeners must have" if what == "no address" else "has no directory.id"
    assert said in outcome.err


def test_controllers_that_are_named_are_asked_though_several_clusters_run(
    barnabas: Barnabas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def several() -> str:
        raise UserError("several clusters run here")

    monkeypatch.setattr("barnabas.cli.address.default_bootstrap", several)
    (port,) = free_ports(1)
    outcome = barnabas("quorum", "status", "--bootstrap-controller", f"127.0.0.1:{port}")
    assert outcome.err.startswith(f"barnabas: no controller answers at 127.0.0.1:{port}")
    assert barnabas("quorum", "status").err == "barnabas: several clusters run here\n"
    assert "'x' is not HOST:PORT" in barnabas("quorum", "status", "--bootstrap", "x").err
