"""Message classes: construction, comparison, repr, and what importing costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.protocol.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.k51_alter_user_scram_credentials import ScramCredentialUpsertion
from barnabas.protocol.schema import Message, Struct, int32


def test_defaults_come_from_the_rows() -> None:
    answer = PartitionProduceResponse()
    assert (answer.index, answer.log_append_time_ms, answer.error_message) == (0, -1, None)
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (-1, -1)
    assert answer.unknown_tagged_fields == ()


def test_lists_and_structures_are_fresh() -> None:
    first, second = ProduceResponse(), ProduceResponse()
    first.responses.append(TopicProduceResponse())
    assert second.responses == []
    one, other = PartitionProduceResponse(), PartitionProduceResponse()
    one.current_leader.leader_id = 5
    assert other.current_leader.leader_id == -1


def test_arguments_are_keywords_and_known() -> None:
    with pytest.raises(TypeError):
        HeartbeatRequest("group")  # type: ignore[misc]
    with pytest.raises(TypeError):
        HeartbeatRequest(group="group")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        HeartbeatRequest().group = "group"  # type: ignore[attr-defined]


def test_equality() -> None:
    assert MetadataRequest(topics=[MetadataRequestTopic(name="a")]) == MetadataRequest(
        topics=[MetadataRequestTopic(name="a")]
    )
    assert MetadataRequest() != MetadataRequest(topics=None)
    assert MetadataRequest() != MetadataRequest(unknown_tagged_fields=((1, b""),))
    assert MetadataRequest() != HeartbeatRequest()
    with pytest.raises(TypeError, match="unhashable"):
        hash(MetadataRequest())


def test_repr() -> None:
    assert repr(MetadataRequestTopic(name="a", topic_id=b"\1" * 16, unknown_tagged_fields=((7, b"x"),))) == (
        f"MetadataRequestTopic(topic_id={bytes([1] * 16)!r}, name='a', unknown_tagged_fields=(7: 1 bytes))"
    )


def test_repr_shows_no_password() -> None:
    shown = repr(ScramCredentialUpsertion(name="a", mechanism=1, iterations=4096, salted_password=b"secret"))
    assert shown.endswith("salted_password=[hidden])")
    assert "secret" not in repr(SaslAuthenticateRequest(auth_bytes=b"secret"))


def test_repr_keeps_large_values_out_of_logs() -> None:
    large, small = (PartitionProduceData(records=memoryview(value)) for value in (bytes(100), b"ab"))
    assert repr(large) == "PartitionProduceData(index=0, records=<100 bytes>)"
    assert repr(small) == "PartitionProduceData(index=0, records=b'ab')"


def test_class_facts() -> None:
    assert (HeartbeatRequest.NAME, HeartbeatRequest.API_KEY) == ("Heartbeat", 12)
    assert (HeartbeatRequest.MIN_VERSION, HeartbeatRequest.MAX_VERSION, HeartbeatRequest.FLEXIBLE_FROM) == (0, 4, 4)


def test_a_message_of_our_own() -> None:
    class Point(Struct):
        x: int = int32("0+")
        y: int = int32("1+", 7)

    class Line(Message, versions="0-1"):
        length: int = int32("0+")

    assert Point(x=1) == Point(x=1, y=7)
    assert Line.decode(Line(length=3).encode(1), 1) == Line(length=3)


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    """A process pays for the APIs that it serves or calls."""
    program = (
        "import sys; from barnabas.protocol import headers, messages, error_responses; messages.request_class(12);"
        "loaded = [name for name in sys.modules if name.startswith('barnabas.protocol.messages.k')];"
        "assert loaded == ['barnabas.protocol.messages.k12_heartbeat'], loaded;"
        "assert 'barnabas.protocol.codec' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
