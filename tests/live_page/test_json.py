"""/live.json of a cluster: each process answers in the shape of `live_shape`, and over HTTP.

Tests barnabas/common/pages/live_shape.py, barnabas/common/pages/live_constants.py and broker/live/view.py.
"""

from __future__ import annotations

import json
import types
import typing
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from barnabas.cluster import CONTROLLER_ID
from barnabas.common.pages import live_constants, live_shape
from barnabas.metrics.live import POLICY
from tests.live_page.conftest import CLIENT, LEADER, STALLED, TOPIC, Stalled
from tests.support.waiting import eventually

#: The types of the items of limited lists, by their keys.
ITEMS = {
    "partitions": live_shape.Partition,
    "groups": live_shape.Group,
    "transactions": live_shape.Transaction,
    "shares": live_shape.SharePartition,
    "held": live_shape.Held,
    "clients": live_shape.PushingClient,
    "elsewhere": live_shape.Waiting,
    "throttled": live_shape.Throttled,
    "members": live_shape.Member,
    "response_queue": live_shape.RequestShape,
    "sending": live_shape.RequestShape,
}
#: The types of JSON values for Python types.
SCALARS: dict[Any, Any] = {float: (int, float)}


def ask(url: str, method: str = "GET") -> tuple[int, Message, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers, refused.read()


def look(stalled: Stalled, node_id: int = LEADER, query: str = "") -> Any:
    status, headers, body = ask(stalled.url(node_id, f"/live.json?{query}"))
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    return json.loads(body)


def misfits(value: Any, kind: Any, where: str) -> Iterator[str]:
    """Return the places where a value does not have its type."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if all(any(misfits(value, each, where)) for each in get_args(kind)):
            yield f"{where}: {value!r}"
    elif origin is Literal:
        if value not in get_args(kind):
            yield f"{where}: {value!r}"
    elif not isinstance(value, SCALARS.get(kind, dict if is_typeddict(kind) else origin or kind)):
        yield f"{where}: {value!r} is no {kind}"
    elif is_typeddict(kind):
        yield from _misfits_of_dict(value, kind, where)
    elif origin in (list, dict):
        for name, item in value.items() if origin is dict else enumerate(value):
            yield from misfits(item, get_args(kind)[-1], f"{where}[{name}]")


def _misfits_of_dict(value: Any, kind: Any, where: str) -> Iterator[str]:
    hints = get_type_hints(kind, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    if not (hints.keys() - optional <= value.keys() <= hints.keys()):
        yield f"{where}: has {sorted(value)}"
    kinds = get_type_hints(kind)
    if kind is live_shape.Listed:
        kinds["items"] = list[ITEMS[where.rpartition(".")[2]]]  # type: ignore[misc]
    for name in kinds.keys() & value.keys():
        yield from misfits(value[name], kinds[name], f"{where}.{name}")


def test_the_checker_of_shapes_can_fail() -> None:
    good: Any = {"name": "decide", "age_ms": 1.5}
    assert list(misfits(good, live_shape.Event, "event")) == []
    for bad in ({"name": "decide"}, {**good, "age_ms": "1"}, {**good, "more": 1}):
        assert list(misfits(bad, live_shape.Event, "event")) != []
    assert list(misfits("nowhere", typing.cast(Any, live_shape.Place), "place")) != []
    assert list(misfits(None, str | None, "client")) == []


@pytest.mark.parametrize(
    ("node_id", "shape"), [(LEADER, live_shape.BrokerLive), (CONTROLLER_ID, live_shape.ControllerLive)]
)
def test_each_process_answers_in_the_shape(stalled: Stalled, node_id: int, shape: Any) -> None:
    view = look(stalled, node_id)
    assert list(misfits(view, shape, "live")) == []
    assert view["schema"] == live_constants.SCHEMA
    assert view["node"]["id"] == node_id
    assert [(peer["role"], peer["id"]) for peer in view["node"]["peers"]] == [
        ("broker", 0),
        ("broker", 1),
        ("broker", 2),
        ("controller", 100),
    ]


def test_a_waiting_produce_has_its_reason(stalled: Stalled) -> None:
    def waiting() -> Any:
        (rig,) = [rig for rig in look(stalled)["purgatories"] if rig["name"] == "Produce"]
        return [item for item in rig["items"] if item["client_id"] == CLIENT and len(item["reasons"]) == 1]

    (item,) = eventually("it waits, and no longer for the other follower", waiting)
    (reason,) = item["reasons"]
    assert (reason["kind"], reason["replica"], reason["topic"], reason["offset"]) == ("replica", STALLED, TOPIC, 2)
    wanted = f"produce of client {CLIENT} waits for offset 2 of orders-0 on replica 2, whose fetcher is at 1 and last "
    assert item["sentence"].startswith(wanted)
    assert item["request"]["place"] == "parked"


def test_the_controller_shows_its_brokers(stalled: Stalled) -> None:
    view = look(stalled, CONTROLLER_ID)
    assert [(broker["id"], broker["state"]) for broker in view["brokers"]] == [(id_, "active") for id_ in range(3)]
    assert sum(broker["leads"] for broker in view["brokers"]) == view["metadata"]["partitions"]
    assert view["metadata"]["offline"] == 0
    assert view["events"]["processed"] > 0


def test_a_query_limits_and_filters(stalled: Stalled) -> None:
    assert look(stalled, query="section=handlers&limit=1")["handlers"]["total"] == 8
    assert len(look(stalled, query="section=handlers&limit=1")["handlers"]["items"]) == 1
    assert look(stalled, query="section=handlers").keys() == {"schema", "at_ms", "node", "handlers"}
    view = look(stalled, query=f"section=partitions&topic={TOPIC}")
    assert [(item["topic"], item["partition"]) for item in view["partitions"]["items"]] == [(TOPIC, 0)]


def test_the_page_and_its_files_are_served_with_their_policy(stalled: Stalled) -> None:
    for path, kind in (("/live", "text/html"), ("/live/app.js", "text/javascript"), ("/live/base.css", "text/css")):
        status, headers, body = ask(stalled.url(path=path))
        assert (status, headers.get_content_type()) == (200, kind)
        assert (headers["Content-Security-Policy"], headers["X-Content-Type-Options"]) == (POLICY, "nosniff")
        assert len(body) == int(headers["Content-Length"])
        status, headers, body = ask(stalled.url(path=path), "HEAD")
        assert (status, body, int(headers["Content-Length"]) > 500) == (200, b"", True)
    assert ask(stalled.url(path="/"))[0] == 200, "it leads to the page"


@pytest.mark.parametrize("path", ["/live/", "/live/none.js", "/live/../app.js", "/live/__init__.py", "/live.jsonx"])
def test_unknown_pages_are_not_found(stalled: Stalled, path: str) -> None:
    assert ask(stalled.url(path=path))[0] == 404


@pytest.mark.parametrize("path", ["/live", "/live.json"])
def test_nothing_can_be_posted(stalled: Stalled, path: str) -> None:
    status, headers, _ = ask(stalled.url(path=path), "POST")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
