"""The clock of a cluster with TLS and logins: delegation tokens expire, and only its own users move it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from barnabas import testing
from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.clock import ClockError
from barnabas.clock.cluster_clock import ask_node
from barnabas.faults.pages import NodePage, target_of
from barnabas.protocol.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.k41_describe_delegation_token import DescribeDelegationTokenRequest
from tests.support.access import secured
from tests.support.scram_cluster import login

MINUTES_MS = 600_000


@pytest.fixture(scope="module")
def kafka() -> Iterator[testing.Cluster]:
    """A broker and a controller whose every connection is encrypted and authenticated."""
    config = {"delegation.token.secret.key": "s3cret", "delegation.token.expiry.time.ms": MINUTES_MS}
    with testing.cluster(security="SASL_SSL", users={"alice": "a-secret"}, config=config) as running:
        yield running


def connection(kafka: testing.Cluster, user: str, password: str, more: str = "") -> NodeConnection:
    settings = {**kafka.client_settings("alice", "java"), "sasl.jaas.config": login(user, password, more)}
    host, _, port = settings.pop("bootstrap.servers").rpartition(":")
    return NodeConnection(host, int(port), timeout_ms=20_000, security=secured(settings))


def test_delegation_tokens_expire(kafka: testing.Cluster) -> None:
    with connection(kafka, "alice", "a-secret") as alice:
        token = alice.send(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
    assert token.error_code == 0
    hmac = base64.b64encode(token.hmac).decode()

    def is_accepted() -> bool:
        with connection(kafka, token.token_id, hmac, ' tokenauth="true"') as holder:
            try:
                holder.connect()
            except NodeConnectionError:
                return False
            return True

    def known() -> list[str]:
        with connection(kafka, "alice", "a-secret") as alice:
            return [each.token_id for each in alice.send(DescribeDelegationTokenRequest(owners=None), 3).tokens]

    kafka.clock.advance("4m")
    assert is_accepted()
    assert known() == [token.token_id]
    kafka.clock.advance("7m")
    assert not is_accepted()
    assert known() == [], "the controller has removed it"
    with connection(kafka, "alice", "a-secret") as alice:
        later = alice.send(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
    assert later.issue_timestamp_ms >= token.issue_timestamp_ms + MINUTES_MS


@pytest.mark.parametrize(("headers", "status"), [({}, 401), ({"Authorization": "Bearer guess"}, 401), (None, 403)])
def test_nobody_else_moves_it(kafka: testing.Cluster, headers: dict[str, str] | None, status: int) -> None:
    """Neither without the cluster's credential, nor with it from a page of another site in a browser."""
    pages = target_of(kafka.directory).pages()
    addresses = [f"{page.host}:{page.port}" for page in pages.values()]
    body = {"offset_ms": 1000 * MINUTES_MS, "advance": "1000h"}
    before_ms, access = kafka.clock.offset_ms(), pages[0].access
    if headers is None:
        headers = {"Authorization": access.credential, "Origin": "https://evil.example"}
    for address in (*addresses, urlsplit(kafka.environment["BARNABAS_CONTROL_URL"]).netloc):
        context = ssl.create_default_context(cafile=access.ca)
        asking = http.client.HTTPSConnection(address, timeout=20, context=context)
        asking.request("POST", "/clock", json.dumps(body), headers)
        assert asking.getresponse().status == status
        asking.close()
    assert kafka.clock.offset_ms() == before_ms


def test_wrong_access_is_one_line(kafka: testing.Cluster) -> None:
    page = target_of(kafka.directory).pages()[0]
    for access, reason in (
        (page.access._replace(credential="Bearer guess"), "asks for other credentials"),
        (page.access._replace(scheme="http"), "does not answer"),
    ):
        with pytest.raises(ClockError, match=reason):
            ask_node(NodePage(0, "broker", page.host, page.port, access), "GET")
