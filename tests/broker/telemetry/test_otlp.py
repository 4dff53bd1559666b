"""OpenTelemetry's metrics, read within bounds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.broker.telemetry import otlp
from barnabas.broker.telemetry.otlp import (
    LABELS_MAX,
    NAME_CHARACTERS_MAX,
    PARTS_MAX,
    SLOW_BYTES_MAX,
    VALUE_CHARACTERS_MAX,
    Point,
    Pushed,
    label_name,
    metric_name,
    read,
)
from barnabas.broker.telemetry.payload import PayloadError
from barnabas.broker.telemetry.subscriptions import Wanted
from barnabas.metrics.names import family_names
from barnabas.metrics.table.catalogue import METRICS
from tests.broker.telemetry.payloads import CUMULATIVE, PREFIX, Payload

ALL = Wanted(("*",))


def test_gauges_and_sums_with_the_labels_of_their_resource() -> None:
    payload = Payload(client_rack="r1").gauge(f"{PREFIX}producer.latency", 1.5, node_id=3)
    payload.sum(f"{PREFIX}producer.sent.total", 7, topic="t", client_rack="r2").sum(f"{PREFIX}x", 2, CUMULATIVE, False)
    rack = ("client_rack", "r1")
    assert read(payload.encoded(), ALL) == Pushed(
        [
            Point("org_apache_kafka_producer_latency", (rack, ("node_id", "3")), 1.5),
            Point(
                "org_apache_kafka_producer_sent_total",
                (("client_rack", "r2"), ("topic", "t")),
                7.0,
                True,
                is_delta=True,
            ),
            Point("org_apache_kafka_x", (rack,), 2.0),
        ],
        0,
    )


def test_what_is_not_wanted_is_not_read() -> None:
    payload = Payload().gauge("a.b", 1.0).gauge("c", 2.0).histogram("d")
    assert read(payload.encoded(), Wanted(("a.",))) == Pushed([Point("client_a_b", (), 1.0)], 0)


def test_other_types_and_points_without_a_value_are_left_out() -> None:
    payload = Payload().histogram("h").without_value("g").gauge("x" * (NAME_CHARACTERS_MAX + 1), 1.0).gauge("a", 1.0)
    assert read(payload.encoded(), ALL) == Pushed([Point("client_a", (), 1.0)], 3)


def test_labels_have_bounds() -> None:
    many = {f"l{n}": n for n in range(LABELS_MAX + 1)}
    payload = Payload().gauge("a", 1.0, **many).gauge("b", 1.0, long="x" * 1000, flag=True, part=0.5, raw=b"x")
    (point,), left_out = read(payload.encoded(), ALL)
    assert dict(point.labels) == {"long": "x" * VALUE_CHARACTERS_MAX, "flag": "True", "part": "0.5"}
    assert left_out == 1


def test_points_below_a_resource_with_too_many_labels_cost_nothing_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a push of 300 KB, with 24,000 labels for 24,000 points, took eight seconds."""
    looked_at = []

    def labels(self: otlp._Reader, attributes: object) -> dict[str, str]:
        looked_at.append(attributes)
        return of_library(self, attributes)

    of_library = otlp._Reader._labels
    monkeypatch.setattr(otlp._Reader, "_labels", labels)
    payload = Payload(**{f"l{n}": n for n in range(LABELS_MAX + 1)})
    for _ in range(100):
        payload.gauge("a", 1.0, other="x")
    assert read(payload.encoded(), ALL) == Pushed([], 100)
    assert len(looked_at) == 1


@pytest.mark.parametrize("payload", [b"\xff", b"\x0a\x05ab", b"hello world"])
def test_other_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(PayloadError, match="no OpenTelemetry metrics"):
        read(payload, ALL)


def test_too_many_parts_are_refused_before_they_are_gone_through() -> None:
    empty_resource = b"\x0a\x00"
    assert read(empty_resource * (PARTS_MAX // 2), ALL) == Pushed([], 0)
    with pytest.raises(PayloadError, match=f"more than {PARTS_MAX} parts"):
        read(empty_resource * (PARTS_MAX + 1), ALL)


def test_a_library_without_a_c_parser_gets_less(monkeypatch: pytest.MonkeyPatch) -> None:
    decode_error, message, _ = otlp._library()
    monkeypatch.setattr(otlp, "_library", lambda: (decode_error, message, True))
    unknown_fields = b"\x78\x01"
    assert read(unknown_fields * (SLOW_BYTES_MAX // 2), ALL) == Pushed([], 0)
    with pytest.raises(PayloadError, match="more than 65536 bytes"):
        read(unknown_fields * (SLOW_BYTES_MAX // 2) + b"\x00", ALL)


def test_deeply_nested_values_are_refused() -> None:
    value = b""
    for _ in range(1000):
        value = _field(5, _field(1, value))  # a list of one value
    with pytest.raises(PayloadError, match="no OpenTelemetry metrics"):
        read(_field(1, _field(1, _field(1, _field(2, value)))), ALL)


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    length = len(content)
    digits = bytearray()
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *digits, length]) + content


def test_names_are_prometheus_names() -> None:
    assert metric_name("org.apache.kafka.producer.io-time") == "org_apache_kafka_producer_io_time"
    assert metric_name("up") == "client_up"
    assert metric_name("kafka.server.é\n{") == "client_kafka_server____"
    assert [label_name(name) for name in ("node.id", "__name__", "7", "", "é")] == ["node_id", "name__", "_7", "_", "_"]


def test_no_client_can_claim_a_name_of_the_brokers_own() -> None:
    for row in METRICS:
        for name in family_names(row):
            assert not name.startswith(("client_", "org_apache_kafka_"))
            assert metric_name(name) != name


def test_the_library_is_imported_with_the_first_push() -> None:
    code = "import sys, barnabas.broker.broker_server; sys.exit('google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
