"""/faults and /recorder over HTTP and from Python, on a broker without sockets for clients.

Tests pages.py, and barnabas/faults/client.py, barnabas/faults/handle.py, barnabas/faults/nodes.py,
barnabas/faults/pages.py, barnabas/faults/recording.py and barnabas/faults/waiting.py.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.faults.pages import add_pages
from barnabas.common.clock import SystemClock
from barnabas.common.pages.page_access import CHANGE_VARIABLE
from barnabas.common.pages.page_auth import TRIES_MAX, Auths, PageAuth
from barnabas.faults import Fault, FaultError, Faults, FaultsUnavailableError, FaultTimeoutError
from barnabas.metrics.http import MetricsServer
from tests.broker.faults.fault_rig import FaultRig, errors_of
from tests.support.broker.broker_rig import batch, produce, state

CREDENTIAL = "Bearer t0ken"


class Served(FaultRig):
    """A FaultRig with its pages."""

    def __init__(self) -> None:
        super().__init__()
        self.push({"t": [state(1), state(1)]})
        self.page = MetricsServer(self.registry, auths=Auths(None, PageAuth([CREDENTIAL], SystemClock())))
        add_pages(self.page, self.engine, "broker")
        self.page.start()

    def http(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.page.port, timeout=30)
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        connection.request(method, path, text, {"Authorization": CREDENTIAL})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer

    def produce(self, **about: Any) -> int:
        response = self.ask(produce(batch(b"v")), 9, **about)
        return next(iter(errors_of(response, 9).values()))


@pytest.fixture
def rig() -> Iterator[Served]:
    made = Served()
    yield made
    made.page.stop()
    made.engine.remove_all()
    made.close()


@pytest.fixture
def faults(rig: Served, monkeypatch: pytest.MonkeyPatch) -> Faults:
    monkeypatch.setenv(CHANGE_VARIABLE, CREDENTIAL.removeprefix("Bearer "))
    return Faults(f"127.0.0.1:{rig.page.port}")


def test_a_faults_life(rig: Served) -> None:
    assert rig.http("GET", "/faults") == (200, {"node": 1, "role": "broker", "faults": []})
    wanted = {"api": ["Produce"], "topic": "t", "error": "INVALID_RECORD", "times": 2}
    status, added = rig.http("POST", "/faults", wanted)
    assert status == 201
    (state_,) = added["faults"]
    assert (state_["id"], state_["fault"], state_["state"], state_["fired"]) == ("f1", wanted, "armed", 0)
    assert rig.produce() == 87
    status, state_ = rig.http("GET", "/faults/f1")
    assert (status, state_["fired"], state_["calls"], state_["events"][0]["api"]) == (200, 1, 1, "Produce")
    rig.produce()
    assert rig.http("GET", "/faults")[1]["faults"][0]["state"] == "spent"
    status, state_ = rig.http("DELETE", "/faults/f1")
    assert (status, state_["state"], state_["fired"]) == (200, "removed", 2)
    assert rig.http("GET", "/faults/f1")[0] == rig.http("DELETE", "/faults/f1")[0] == 404
    assert rig.produce() == 0


def test_several_at_once(rig: Served) -> None:
    status, added = rig.http("POST", "/faults", [{"blackhole": True}, {"throttle_ms": 5}])
    assert (status, [one["id"] for one in added["faults"]]) == (201, ["f1", "f2"])
    status, removed = rig.http("DELETE", "/faults")
    assert (status, [one["state"] for one in removed["faults"]]) == (200, ["removed", "removed"])
    assert rig.http("GET", "/faults")[1]["faults"] == []
    status, answer = rig.http("POST", "/faults", [{"blackhole": True}, {"error": "NO_SUCH"}])
    assert (status, rig.http("GET", "/faults")[1]["faults"]) == (400, [])
    assert "NO_SUCH" in answer["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "complaint"),
    [
        ("POST", "/faults", "{", 400, "the body is not JSON"),
        ("POST", "/faults", "[" * 100_000, 400, "the body is not JSON"),
        ("POST", "/faults", {"colour": 1}, 400, "unknown key 'colour'"),
        ("POST", "/faults", {"node": 9, "blackhole": True}, 400, "this is node 1, but the fault is for node 9"),
        ("POST", "/faults/f1", {"blackhole": True}, 405, "a fault cannot be changed"),
        ("GET", "/faults/f9", None, 404, "there is no fault 'f9'"),
        ("GET", "/recorder?colour=red", None, 400, "unknown filter 'colour'"),
        ("GET", "/recorder?after=x", None, 400, "after must be a sequence number"),
        ("GET", "/recorder/1", None, 404, "there is nothing below /recorder"),
        ("POST", "/recorder", {"recording": "yes"}, 400, "the body must be"),
        ("POST", "/recorder", {"recording": True, "capacity": 0}, 400, "capacity must be between 1 and"),
        ("POST", "/recorder", {"recording": True, "colour": 1}, 400, "unknown key 'colour'"),
    ],
)
def test_invalid_requests_are_answered_in_one_line(
    rig: Served, method: str, path: str, body: Any, status: int, complaint: str
) -> None:
    answered, answer = rig.http(method, path, body)
    assert answered == status
    assert complaint in answer["error"]
    assert "\n" not in answer["error"]


def test_the_recorder(rig: Served) -> None:
    assert rig.http("POST", "/recorder", {"recording": True, "capacity": 3})[1]["recording"]
    for _ in range(4):
        rig.produce()
    _, answer = rig.http("GET", "/recorder?api=Produce&topic=t")
    assert (answer["capacity"], [one["sequence"] for one in answer["requests"]]) == (3, [2, 3, 4])
    assert rig.http("DELETE", "/recorder")[1]["requests"] == []
    assert rig.http("GET", "/recorder")[1]["requests"] == []
    assert not rig.http("POST", "/recorder", {"recording": False})[1]["recording"]


# From Python


def test_a_handle_shows_what_fired(rig: Served, faults: Faults) -> None:
    with faults.add(Fault(api="Produce", error="INVALID_RECORD", on_call=2)) as handle:
        assert [rig.produce(), rig.produce(), rig.produce()] == [0, 87, 0]
        assert (handle.wait_fired(), handle.fired, handle.calls, handle.held) == (1, 1, 2, 0)
        assert [(event["api"], event["client_id"]) for event in handle.events] == [("Produce", "tester")]
        assert faults.list()[0]["node"] == 1
        with pytest.raises(FaultTimeoutError, match=r"fired 1 times in 0\.05 s, not 2"):
            handle.wait_fired(2, timeout_s=0.05)
    assert faults.list() == []
    assert (handle.fired, handle.is_removed) == (1, True), "what it was is still known"
    handle.remove()


def test_a_refused_fault_raises_the_same_error(faults: Faults) -> None:
    with pytest.raises(FaultError, match="this is node 1, but the fault is for node 5"):
        faults._target.pages()[1].ask("POST", "/faults", {"node": 5, "blackhole": True})
    with pytest.raises(FaultsUnavailableError, match="node 5 is not running; running nodes: 1"):
        faults.add(Fault(node=5, blackhole=True))
    with pytest.raises(FaultError, match="name it with node="):
        faults.add(Fault(disk_full=True))
    with pytest.raises(FaultError, match="name it with node="):
        faults.add(Fault(cut=2))
    with pytest.raises(FaultError, match="no link to itself"):
        faults.add(Fault(node=1, cut=1))
    assert faults.list() == []


def test_several_are_added_or_none(faults: Faults) -> None:
    with pytest.raises(FaultsUnavailableError):
        faults.add_all([Fault(blackhole=True), Fault(node=5, blackhole=True)])
    assert faults.list() == []
    assert len(faults.add_all([Fault(blackhole=True), Fault(node=1, disk_full=True)])) == 2
    assert faults.remove("f9") == 0
    assert faults.remove("f2", node=1) == 1
    assert faults.remove_all() == 1


def test_a_context_removes_all_its_faults(rig: Served, faults: Faults) -> None:
    with faults:
        faults.add(Fault(error="INVALID_RECORD"))
        assert rig.produce() == 87
    assert rig.produce() == 0


def test_requests_are_recorded_and_saved(rig: Served, faults: Faults, tmp_path: Path) -> None:
    with faults.recorder as recorder:
        rig.produce()
        rig.produce(client_id="other")
        (request,) = recorder.wait(1, client_id="other")
    rig.produce()
    assert (request.api, request.topics, request.errors, request.outcome) == ("Produce", ["t"], [], "answered")
    assert [one.client_id for one in recorder.requests(api="Produce", topic="t", partition=0)] == ["tester", "other"]
    assert recorder.requests(error="*") == recorder.requests(node=2) == []
    assert len(recorder.wait(1, where=lambda one: one.client_id == "other")) == 1
    with pytest.raises(FaultTimeoutError, match="2 requests match"):
        recorder.wait(3, timeout_s=0.05)
    assert recorder.save(tmp_path / "requests.jsonl", api="Produce") == 2
    lines = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert [line["client_id"] for line in lines] == ["tester", "other"]
    recorder.clear()
    assert recorder.requests() == []


def test_targets_that_do_not_answer(tmp_path: Path) -> None:
    with pytest.raises(FaultsUnavailableError, match=r"does not answer at 127\.0\.0\.1:1"):
        Faults("127.0.0.1:1").list()
    with pytest.raises(FaultsUnavailableError, match="no cluster runs in"):
        Faults(tmp_path).list()
    with pytest.raises(FaultError, match="is not the HOST:PORT"):
        Faults("nonsense").list()
    with pytest.raises(FaultError, match="is not a cluster"):
        Faults(7)


def test_a_removal_that_is_refused_is_not_silent(rig: Served, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = faults.add(Fault(blackhole=True))
    monkeypatch.setenv(CHANGE_VARIABLE, "another")
    stranger = Faults(f"127.0.0.1:{rig.page.port}")
    for _ in range(TRIES_MAX):
        with pytest.raises(FaultsUnavailableError, match="asks for other credentials"):
            stranger.remove("f1")
    with pytest.raises(FaultError, match="status 429"):
        handle.remove()
    assert not handle.is_removed
    assert [state["state"] for state in faults.list()] == ["armed"]


def test_a_process_without_faults_names_the_setting(rig: Served) -> None:
    plain = MetricsServer(rig.registry)
    plain.start()
    try:
        with pytest.raises(FaultsUnavailableError, match=r"barnabas\.faults\.enable=true"):
            Faults(f"127.0.0.1:{plain.port}").list()
    finally:
        plain.stop()


@pytest.mark.parametrize("path", ["/faults", "/recorder"])
@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Host": "evil.example:9404"}, {"Host": "broker-0", "Origin": "null"}],
)
def test_a_foreign_page_can_neither_add_nor_read_faults(rig: Served, path: str, headers: dict[str, str]) -> None:
    for method in ("GET", "POST", "DELETE"):
        connection = http.client.HTTPConnection("127.0.0.1", rig.page.port, timeout=30)
        connection.request(method, path, '{"api": "Produce", "error": "INVALID_RECORD"}', headers)
        assert connection.getresponse().status == 403
        connection.close()
    assert rig.engine.faults() == []
