"""Client instances: subscriptions, pushes, refusals, and their end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.settings.dynamic_config import DynamicConfig, ResourceType
from barnabas.broker.telemetry import manager as module
from barnabas.broker.telemetry.manager import ClientMetricsManager
from barnabas.broker.telemetry.receiver import TelemetryReceiver
from barnabas.common.clock import FakeClock
from barnabas.common.ids import METADATA_TOPIC_ID, ZERO_UUID
from barnabas.config import Config
from barnabas.metrics.page.exposition import render
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.k72_push_telemetry import PushTelemetryRequest
from barnabas.protocol.metadata_records import ConfigRecord
from barnabas.protocol.records.compression import CompressionType, compress
from tests.broker.telemetry.payloads import Payload

BYTES_MAX = 2000
INTERVAL_MS = 1000
ID = b"i" * 16
OTHER_ID = b"o" * 16
DATA = Payload().gauge("a", 1.0).encoded()


class Rig:
    """A manager whose clients are called."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.registry = Registry(self.clock)
        self.receiver = TelemetryReceiver(self.registry)
        self.manager = ClientMetricsManager(self.clock, self.registry, self.receiver, BYTES_MAX)
        settings = {"node.id": "1", "controller.quorum.bootstrap.servers": "h:1"}
        self.dynamic = DynamicConfig(Config.from_properties(settings, "broker"))
        self.manager.follow(self.dynamic)
        self.connections: dict[str, Any] = {}
        self.client_id = "etl"
        self.software: tuple[str, str] | None = ("librdkafka", "2.6")

    def subscribe(self, name: str = "s", **texts: str | None) -> None:
        """Push the configs of a subscription."""
        self.dynamic.apply_records(
            [
                ConfigRecord(
                    resource_type=ResourceType.CLIENT_METRICS,
                    resource_name=name,
                    name=key.replace("_", "."),
                    value=text,
                )
                for key, text in texts.items()
            ],
            is_full=False,
        )

    def connection(self, name: str = "c") -> Any:
        made = SimpleNamespace(client_software=self.software, is_closed=False, on_closed={})
        return self.connections.setdefault(name, made)

    def close(self, name: str = "c") -> None:
        connection = self.connection(name)
        connection.is_closed = True
        for follow in connection.on_closed.values():
            follow()

    def request(self, message: Any, connection: str) -> Request:
        address = "10.0.0.2" if connection == "evil" else "10.0.0.1"
        context = RequestContext("PLAINTEXT", "PLAINTEXT", address, 5000, connection)
        request = Request.for_message(RequestHeader(message.API_KEY, 0, 1, self.client_id), message, context)
        request.connection = self.connection(connection)
        return request

    def get(self, instance_id: bytes = ID, connection: str = "c") -> GetTelemetrySubscriptionsResponse:
        message = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        return self.manager.get_subscriptions(self.request(message, connection))

    def push(self, subscription_id: int, connection: str = "c", **fields: Any) -> None:
        asked = {"client_instance_id": ID, "metrics": DATA, **fields}
        message = PushTelemetryRequest(subscription_id=subscription_id, **asked)
        self.manager.push(self.request(message, connection))

    def error_of(self, call: Callable[[], object]) -> ErrorCode:
        """Return the error that a request is answered with."""
        try:
            call()
        except ApiError as error:
            return ErrorCode(error.code)
        return ErrorCode.NONE

    def shown(self) -> dict[str, list[float]]:
        """The numbers that the page shows of clients."""
        return {family.name: [number for _, number in family.series] for family in self.receiver.families()}

    def number(self, name: str) -> list[float]:
        """The numbers of a row of client-metrics."""
        row = catalogue.find("kafka.server", "client-metrics", name)
        return [instrument.count for each, found in self.registry.collect() for _, instrument in found if each is row]  # type: ignore[union-attr,misc]


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def subscribed(rig: Rig) -> Rig:
    rig.subscribe(metrics="*", interval_ms=str(INTERVAL_MS))
    return rig


def test_a_client_without_a_subscription_is_asked_for_nothing(rig: Rig) -> None:
    answer = rig.get()
    assert (answer.requested_metrics, answer.push_interval_ms, answer.client_instance_id) == ([], 300_000, ID)
    assert (answer.accepted_compression_types, answer.telemetry_max_bytes) == ([4, 3, 1, 2], BYTES_MAX)
    assert answer.delta_temporality


def test_a_client_without_an_id_gets_one(rig: Rig) -> None:
    first, second = (rig.get(ZERO_UUID, name).client_instance_id for name in "cd")
    assert len({first, second, ZERO_UUID, METADATA_TOPIC_ID}) == 4
    assert rig.manager.instance_count() == 2


def test_a_subscription_matches_by_what_is_known_of_the_client(rig: Rig) -> None:
    rig.subscribe(
        metrics="a",
        match="client_id=etl,client_software_name=librdkafka,client_software_version=2\\.6,"
        "client_source_address=10\\..*,client_source_port=5000,client_instance_id=aWlpaWlpaWlpaWlpaWlpaQ",
    )
    assert rig.get().requested_metrics == ["a"]
    assert rig.get(OTHER_ID).requested_metrics == []
    rig.software = None
    rig.subscribe("unnamed", metrics="b", match="client_software_name=unknown")
    assert rig.get(ZERO_UUID, "d").requested_metrics == ["b"]


def test_a_push_is_shown_until_the_client_ends(subscribed: Rig) -> None:
    answer = subscribed.get()
    subscribed.push(answer.subscription_id)
    assert subscribed.shown() == {"client_a": [1.0]}
    assert subscribed.number("plugin-export-count") == [1]
    subscribed.push(answer.subscription_id, terminating=True)
    assert subscribed.shown() == {}
    later = subscribed.error_of(lambda: subscribed.push(answer.subscription_id, terminating=True))
    assert later is ErrorCode.INVALID_REQUEST


def test_no_push_is_accepted_after_the_last_one_whatever_it_says(subscribed: Rig) -> None:
    """Else two pushes in turn, the last one and an ordinary one, pass by the interval for ever."""
    subscription_id = subscribed.get().subscription_id
    subscribed.push(subscription_id, terminating=True)
    errors = [
        subscribed.error_of(lambda is_last=is_last: subscribed.push(subscription_id, terminating=is_last))  # type: ignore[misc]
        for is_last in (False, True, False)
    ]
    assert errors == [ErrorCode.INVALID_REQUEST] * 3


def test_a_last_push_that_is_refused_may_come_again(subscribed: Rig) -> None:
    subscription_id = subscribed.get().subscription_id
    unknown = subscribed.error_of(lambda: subscribed.push(subscription_id + 1, terminating=True))
    assert unknown is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    subscribed.push(subscription_id, terminating=True)


def test_clients_that_come_too_early_are_throttled(subscribed: Rig) -> None:
    subscription_id = subscribed.get().subscription_id
    assert subscribed.error_of(subscribed.get) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    subscribed.push(subscription_id)
    early = subscribed.error_of(lambda: subscribed.push(subscription_id))
    assert early is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert subscribed.number("throttle-count") == [2]
    subscribed.clock.advance_ms(INTERVAL_MS)
    subscribed.push(subscription_id)


@pytest.mark.parametrize("instance_id", [ZERO_UUID, METADATA_TOPIC_ID])
def test_reserved_ids_cannot_push(subscribed: Rig, instance_id: bytes) -> None:
    refused = subscribed.error_of(lambda: subscribed.push(0, client_instance_id=instance_id))
    assert refused is ErrorCode.INVALID_REQUEST
    assert subscribed.manager.instance_count() == 0


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(BYTES_MAX + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"\xff", "compression_type": 4}, ErrorCode.INVALID_RECORD),
        (
            {"metrics": compress(CompressionType.ZSTD, bytes(BYTES_MAX + 1)), "compression_type": 4},
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_pushes_that_are_refused(subscribed: Rig, fields: dict[str, Any], error: ErrorCode) -> None:
    subscription_id = subscribed.get().subscription_id
    assert subscribed.error_of(lambda: subscribed.push(subscription_id, **fields)) is error
    assert subscribed.shown() == {}
    may_ask_again = error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (subscribed.error_of(subscribed.get) is ErrorCode.NONE) == may_ask_again
    assert subscribed.number("plugin-error-count") == (
        [1] if error is ErrorCode.INVALID_RECORD else [0] * (not may_ask_again)
    )


def test_a_changed_subscription_is_asked_for_again(subscribed: Rig) -> None:
    before = subscribed.get()
    subscribed.push(before.subscription_id)
    subscribed.subscribe(metrics="a")
    refused = subscribed.error_of(lambda: subscribed.push(before.subscription_id))
    assert refused is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert subscribed.number("unknown-subscription-request-count") == [1]
    after = subscribed.get()
    assert (after.requested_metrics, after.client_instance_id) == (["a"], ID)
    early = subscribed.error_of(lambda: subscribed.push(after.subscription_id))
    assert early is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "as in Kafka, the refused push counts"
    subscribed.clock.advance_ms(INTERVAL_MS)
    subscribed.push(after.subscription_id)


def test_a_deleted_subscription_wants_nothing(subscribed: Rig) -> None:
    subscribed.subscribe(metrics=None, interval_ms=None)
    assert subscribed.get().requested_metrics == []


def test_what_nobody_asked_for_is_accepted_and_not_read(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    subscription_id = rig.get().subscription_id
    with caplog.at_level(logging.DEBUG, "barnabas.telemetry"):
        rig.push(subscription_id, metrics=b"\xff\xff")
    assert caplog.messages == []
    assert rig.shown() == {}


def test_a_client_goes_with_its_connection(subscribed: Rig) -> None:
    subscribed.push(subscribed.get().subscription_id)
    subscribed.clock.advance_ms(INTERVAL_MS)
    subscribed.get(connection="d")
    subscribed.close()
    assert subscribed.manager.instance_count() == 1, "it has come back over another connection"
    subscribed.close("d")
    assert (subscribed.manager.instance_count(), subscribed.shown()) == (0, {})
    assert subscribed.number("plugin-export-count") == []


def test_clients_that_send_nothing_more_expire(subscribed: Rig) -> None:
    subscribed.push(subscribed.get().subscription_id)
    subscribed.clock.advance_ms(59_999)
    subscribed.get(OTHER_ID, "d")
    subscribed.manager.expire()
    assert subscribed.manager.instance_count() == 2
    subscribed.clock.advance_ms(1)
    subscribed.manager.expire()
    assert subscribed.manager.instance_count() == 1
    assert subscribed.shown() == {}


def test_the_least_recently_used_makes_way(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 2)
    rig.get(ID)
    rig.get(OTHER_ID, "d")
    rig.error_of(lambda: rig.get(ID))
    rig.get(b"n" * 16, "e")
    assert rig.manager.instance_count() == 2
    assert rig.error_of(lambda: rig.get(ID)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "it is still known"
    assert rig.error_of(lambda: rig.get(OTHER_ID)) is ErrorCode.NONE, "it begins again"


def test_a_request_without_a_connection_of_its_own(rig: Rig) -> None:
    rig.connections["c"] = None
    assert rig.get().client_instance_id == ID


def test_a_connection_has_one_instance_at_a_time(rig: Rig) -> None:
    for number in range(20):
        rig.get(bytes([number + 1]) * 16)
    assert rig.manager.instance_count() == 1
    rig.close()
    assert rig.manager.instance_count() == 0


def test_a_long_client_id_is_cut(rig: Rig) -> None:
    """Anybody may be an instance, with 32 KB of client id: 16,384 of them would take 0.5 GB."""
    rig.subscribe(metrics="a", match=f"client_id=x{{{module.CLIENT_ID_CHARACTERS}}}")
    rig.client_id = "x" * 32_000
    assert rig.get().requested_metrics == ["a"]


def test_nobody_ends_or_takes_the_instance_of_another(subscribed: Rig) -> None:
    subscription_id = subscribed.get().subscription_id
    subscribed.push(subscription_id)
    refused = subscribed.error_of(lambda: subscribed.push(subscription_id, "evil", terminating=True))
    assert refused is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert subscribed.get(ID, "evil").client_instance_id != ID
    subscribed.close("evil")
    assert subscribed.shown() == {"client_a": [1.0]}
    subscribed.clock.advance_ms(INTERVAL_MS)
    subscribed.push(subscription_id)


def test_nothing_is_left_of_a_client_that_goes_while_its_push_is_read(
    subscribed: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription_id = subscribed.get().subscription_id
    export = subscribed.receiver.export

    def slowly(*args: Any) -> None:
        subscribed.close()
        export(*args)

    monkeypatch.setattr(subscribed.receiver, "export", slowly)
    subscribed.push(subscription_id)
    assert (subscribed.shown(), subscribed.number("plugin-export-count")) == ({}, [])


def test_a_connection_that_was_closed_before_its_request_leaves_no_instance(rig: Rig) -> None:
    rig.close()
    rig.get()
    assert rig.manager.instance_count() == 0


def test_clients_without_a_subscription_make_no_series(rig: Rig) -> None:
    rig.get()
    assert rig.error_of(rig.get) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert b"client_instance_id" not in render(rig.registry)


def test_a_handler_does_not_wait_for_pushes_that_are_read(subscribed: Rig) -> None:
    subscription_id = subscribed.get().subscription_id
    with subscribed.receiver._places, subscribed.receiver._places:
        busy = subscribed.error_of(lambda: subscribed.push(subscription_id))
    assert busy is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_unreadable_pushes_do_not_fill_the_log(subscribed: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "barnabas.telemetry"):
        for name in "cde":
            answer = subscribed.get(ZERO_UUID, name)
            asked = {"client_instance_id": answer.client_instance_id, "metrics": b"\xff"}
            refused = subscribed.error_of(lambda: subscribed.push(answer.subscription_id, name, **asked))  # noqa: B023
            assert refused is ErrorCode.INVALID_RECORD
    assert len(caplog.messages) == 1
