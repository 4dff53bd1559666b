"""The effect of each fault on a request, on a broker with real logs: only on matching requests, until its removal.

Tests faults/engine.py, faults/armed.py, faults/matching.py and faults/recorder.py, and of the actions answers.py,
call.py, fetching.py, wire.py and withheld.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.common.topic_partition import TopicPartition
from barnabas.faults.definition import Fault, FaultError
from barnabas.protocol.data.releases import highest_version
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages import k01_fetch as fetch_wire
from barnabas.protocol.messages import k02_list_offsets as offsets_wire
from barnabas.protocol.messages import k03_metadata as metadata_wire
from barnabas.protocol.messages import k18_api_versions as versions_wire
from barnabas.protocol.messages import k22_init_producer_id as init_wire
from barnabas.protocol.records.batch import CorruptBatchError, read_header, verify_crc
from tests.broker.faults.fault_rig import CLOSED, PENDING, SILENT, FaultRig, errors_of
from tests.support.broker.broker_rig import batch, fetch, produce, state, topic_id

E = ErrorCode
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


@pytest.fixture
def rig() -> Iterator[FaultRig]:
    made = FaultRig()
    made.push({"t": [state(1), state(1)], "u": [state(1)]})
    yield made
    made.engine.remove_all()
    made.close()


def produced(*places: tuple[str, int], acks: int = 1) -> Any:
    """Return a Produce request with a batch for each of these partitions."""
    request = produce(batch(b"v"), topic=places[0][0], partition=places[0][1], acks=acks)
    for name, index in places[1:]:
        topic = produce(batch(b"v"), topic=name, partition=index).topic_data[0]
        known = next((known for known in request.topic_data if known.name == name), None)
        if known is None:
            request.topic_data.append(topic)
        else:
            known.partition_data += topic.partition_data
    return request


def fetched(*places: tuple[str, int], **about: Any) -> Any:
    """Return a Fetch request from the start of each of these partitions."""
    request = fetch(0, topic=places[0][0], partition=places[0][1], **about)
    for name, index in places[1:]:
        request.topics += fetch(0, topic=name, partition=index).topics
    return request


def end_of(rig: FaultRig, place: tuple[str, int] = T0) -> int:
    held = rig.manager.find(TopicPartition(*place))
    assert held is not None
    assert held.log is not None
    return int(held.log.log_end_offset)


def records_of(response: Any, index: int = 0) -> bytes:
    data = next(p for topic in response.responses for p in topic.partitions if p.partition_index == index)
    return bytes(data.records)


# Errors


@pytest.mark.parametrize("version", range(3, 14))
def test_a_partition_of_a_produce_fails_and_the_others_are_written(rig: FaultRig, version: int) -> None:
    armed = rig.add(api="Produce", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    response = rig.ask(produced(T0, T1, U0), version)
    assert errors_of(response, version) == {T0: 0, T1: E.NOT_LEADER_OR_FOLLOWER, U0: 0}
    assert [end_of(rig, place) for place in (T0, T1, U0)] == [1, 0, 1], "the faulted one is not carried out"
    assert armed.describe()["events"][0]["partitions"] == [["t", 1]]
    assert errors_of(rig.ask(produced(T0, U0), version), version) == {T0: 0, U0: 0}
    assert armed.trigger.fired == 1
    rig.engine.remove(armed.id)
    assert errors_of(rig.ask(produced(T1), version), version) == {T1: 0}


def test_an_error_without_a_topic_fails_the_whole_request(rig: FaultRig) -> None:
    armed = rig.add(api=["Produce", "InitProducerId"], error="REQUEST_TIMED_OUT")
    assert set(errors_of(rig.ask(produced(T0, T1, U0), 9), 9).values()) == {E.REQUEST_TIMED_OUT}
    assert end_of(rig) == 0
    assert rig.ask(init_wire.InitProducerIdRequest(), 4).error_code == E.REQUEST_TIMED_OUT
    assert armed.trigger.fired == 2
    assert rig.ask(fetched(T0), 12).responses[0].partitions[0].error_code == 0


def test_every_partition_of_a_request_may_match(rig: FaultRig) -> None:
    rig.add(topic="t*", error="KAFKA_STORAGE_ERROR")
    assert errors_of(rig.ask(produced(T0, T1), 9), 9) == dict.fromkeys((T0, T1), E.KAFKA_STORAGE_ERROR)
    assert (end_of(rig, T0), end_of(rig, T1)) == (0, 0)


def test_an_unreadable_request_is_not_answered_either(rig: FaultRig) -> None:
    rig.add(api="ApiVersions", error="INVALID_REQUEST")
    asked = versions_wire.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    sent = rig.send(asked, 4)
    assert sent.answer().error_code == E.INVALID_REQUEST
    frame = bytearray(encode_request(RequestHeader(18, 3, 1, "x"), asked)[4:])
    frame[2:4] = (99).to_bytes(2, "big")
    assert rig.send_frame(frame).answer() == CLOSED


def test_two_faults_of_one_request(rig: FaultRig) -> None:
    rig.add(api="Produce", topic="t", partition=0, error="CORRUPT_MESSAGE")
    rig.add(api="Produce", topic="u", error="MESSAGE_TOO_LARGE")
    errors = errors_of(rig.ask(produced(T0, T1, U0), 9), 9)
    assert errors == {T0: E.CORRUPT_MESSAGE, T1: 0, U0: E.MESSAGE_TOO_LARGE}


def test_a_produce_that_waits_for_replicas_gets_the_error_afterwards(rig: FaultRig) -> None:
    rig.push({"r": [state(1, (1, 2))]})
    rig.add(api="Produce", topic="t", error="INVALID_RECORD")
    sent = rig.send(produced(("r", 0), T0, acks=-1), 9)
    assert sent.answer() == PENDING
    rig.pass_ms(1001)
    assert errors_of(sent.answer(), 9) == {("r", 0): E.REQUEST_TIMED_OUT, T0: E.INVALID_RECORD}


def test_a_produce_without_a_response_loses_its_connection(rig: FaultRig) -> None:
    assert rig.ask(produced(T0, acks=0), 9) == SILENT
    rig.add(api="Produce", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    assert rig.ask(produced(T0, T1, acks=0), 9) == CLOSED
    assert (end_of(rig, T0), end_of(rig, T1)) == (2, 0)
    rig.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER")
    assert rig.ask(produced(T0, acks=0), 9) == CLOSED
    assert end_of(rig, T0) == 2


def test_errors_are_counted_like_real_ones(rig: FaultRig) -> None:
    rig.add(api="Produce", topic="t", error="INVALID_RECORD")
    sent = rig.send(produced(T0, U0), 9)
    sent.answer()
    assert sent.request.ok_count == 1, "the other partition's"


@pytest.mark.parametrize("version", range(4, 19))
def test_a_partition_of_a_fetch_fails_and_the_others_are_read(rig: FaultRig, version: int) -> None:
    rig.ask(produced(T0, T1), 9)
    armed = rig.add(api="Fetch", topic="t", partition=1, error="OFFSET_OUT_OF_RANGE")
    response = rig.ask(fetched(T0, T1, session_id=0, session_epoch=-1), version)
    assert errors_of(response, version) == {T0: 0, T1: E.OFFSET_OUT_OF_RANGE}
    assert b"v" in records_of(response)
    assert records_of(response, 1) == b""
    rig.engine.remove(armed.id)
    response = rig.ask(fetched(T0, T1, session_id=0, session_epoch=-1), version)
    assert errors_of(response, version) == {T0: 0, T1: 0}


def test_partitions_of_a_fetch_session_match(rig: FaultRig) -> None:
    rig.ask(produced(T0), 9)
    first = rig.ask(fetched(T0, T1, session_id=0, session_epoch=0), 12)
    session = {"session_id": first.session_id, "session_epoch": 1}
    armed = rig.add(api="Fetch", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    nothing_named = fetch_wire.FetchRequest(max_wait_ms=500, min_bytes=1, **session)
    response = rig.ask(nothing_named, 12)
    assert errors_of(response, 12)[T1] == E.NOT_LEADER_OR_FOLLOWER, "and it does not wait"
    rig.engine.remove(armed.id)
    session["session_epoch"] = 2
    response = rig.ask(fetch_wire.FetchRequest(max_wait_ms=0, min_bytes=1, **session), 12)
    assert errors_of(response, 12)[T1] == 0, "the session knows that the client was told an error"


def test_a_partition_removed_from_a_session_does_not_match(rig: FaultRig) -> None:
    first = rig.ask(fetched(T0, T1, session_id=0, session_epoch=0), 12)
    armed = rig.add(api="Fetch", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    forgetting = fetch_wire.FetchRequest(
        max_wait_ms=0,
        session_id=first.session_id,
        session_epoch=1,
        forgotten_topics_data=[fetch_wire.ForgottenTopic(topic="t", topic_id=topic_id("t"), partitions=[1])],
    )
    assert errors_of(rig.ask(forgetting, 12), 12) == {}
    assert armed.trigger.calls == 0


def test_errors_of_a_fetch_session_are_at_the_top(rig: FaultRig) -> None:
    rig.add(api="Fetch", error="FETCH_SESSION_ID_NOT_FOUND", times=1)
    assert rig.ask(fetched(T0), 12).error_code == E.FETCH_SESSION_ID_NOT_FOUND
    assert rig.ask(fetched(T0), 12).error_code == 0


def test_followers_match_only_if_they_are_named(rig: FaultRig) -> None:
    rig.push({"r": [state(1, (1, 2))]})
    follower: dict[str, Any] = {"client_id": "broker-2-fetcher-0"}
    request = fetch(0, topic="r", replica_id=2)
    armed = rig.add(api="Fetch", error="KAFKA_STORAGE_ERROR")
    assert errors_of(rig.ask(request, 12, **follower), 12) == {("r", 0): 0}
    assert armed.trigger.calls == 0
    rig.engine.remove_all()
    rig.add(api="Fetch", error="KAFKA_STORAGE_ERROR", sender="brokers")
    assert errors_of(rig.ask(request, 12, **follower), 12) == {("r", 0): E.KAFKA_STORAGE_ERROR}
    assert errors_of(rig.ask(fetched(("r", 0)), 12), 12) == {("r", 0): 0}, "clients are not"


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12, 13])
def test_metadata_of_all_topics_fails_for_one(rig: FaultRig, version: int) -> None:
    rig.add(api="Metadata", topic="u", error="LEADER_NOT_AVAILABLE")
    everything = metadata_wire.MetadataRequest(topics=[] if version == 0 else None)
    topics = {topic.name: topic for topic in rig.ask(everything, version).topics}
    assert {name: topic.error_code for name, topic in topics.items()} == {"t": 0, "u": E.LEADER_NOT_AVAILABLE}
    assert (len(topics["t"].partitions), len(topics["u"].partitions)) == (2, 0)
    named = metadata_wire.MetadataRequest(topics=[metadata_wire.MetadataRequestTopic(name=name) for name in "tu"])
    topics = {topic.name: topic for topic in rig.ask(named, version).topics}
    assert {name: topic.error_code for name, topic in topics.items()} == {"t": 0, "u": E.LEADER_NOT_AVAILABLE}


def test_list_offsets_of_one_partition(rig: FaultRig) -> None:
    rig.add(topic="t", partition=0, error="UNKNOWN_LEADER_EPOCH")
    parts = [offsets_wire.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
    request = offsets_wire.ListOffsetsRequest(
        replica_id=-1, topics=[offsets_wire.ListOffsetsTopic(name="t", partitions=parts)]
    )
    (topic,) = rig.ask(request, 7).topics
    assert {p.partition_index: p.error_code for p in topic.partitions} == {0: E.UNKNOWN_LEADER_EPOCH, 1: 0}


# Matching requests, and times


def test_requests_that_a_fault_matches(rig: FaultRig) -> None:
    armed = rig.add(api="Produce", client_id="billing-*", error="INVALID_RECORD")
    assert errors_of(rig.ask(produced(T0), 9), 9) == {T0: 0}
    assert errors_of(rig.ask(produced(T0), 9, client_id="billing-7"), 9) == {T0: E.INVALID_RECORD}
    rig.engine.remove(armed.id)
    rig.add(connection="c-2", error="INVALID_RECORD")
    assert errors_of(rig.ask(produced(T0), 9), 9) == {T0: 0}
    assert errors_of(rig.ask(produced(T0), 9, connection="c-2"), 9) == {T0: E.INVALID_RECORD}
    rig.engine.remove_all()
    for about in ({"listener": "SECRET"}, {"principal": "User:admin"}, {"group": "g"}):
        rig.add(error="INVALID_RECORD", **about)
    assert errors_of(rig.ask(produced(T0), 9), 9) == {T0: 0}
    rig.add(error="INVALID_RECORD", listener="PLAIN*", principal="User:*")
    assert errors_of(rig.ask(produced(T0), 9), 9) == {T0: E.INVALID_RECORD}


def test_a_fault_of_another_node_is_refused(rig: FaultRig) -> None:
    with pytest.raises(FaultError, match="this is node 1, but the fault is for node 2"):
        rig.add(node=2, error="INVALID_RECORD")
    with pytest.raises(FaultError, match="no link to itself"):
        rig.add(cut=1)
    rig.add(node=1, error="INVALID_RECORD")
    assert len(rig.engine.faults()) == 1


def test_all_faults_of_a_list_are_added_or_none(rig: FaultRig) -> None:
    with pytest.raises(FaultError):
        rig.engine.add_all([Fault(error="INVALID_RECORD"), Fault(node=2, error="INVALID_RECORD")])
    assert rig.engine.faults() == []


def test_a_request_in_an_envelope_does_not_match_again(rig: FaultRig) -> None:
    rig.add(error="INVALID_RECORD", sender="any")
    inner = rig.request(metadata_wire.MetadataRequest(topics=None), 12)
    answer = rig.engine.wrap(TABLE)[3].handle(rig.services, inner)
    assert {topic.error_code for topic in answer.message.topics} == {0}


def test_spent_faults_are_dropped(rig: FaultRig) -> None:
    for _ in range(300):
        rig.add(api="Produce", error="INVALID_RECORD", times=1)
        rig.ask(produced(T0), 9)
    assert len(rig.engine.faults()) <= 201
    assert errors_of(rig.ask(produced(T0), 9), 9) == {T0: 0}


# Delays, disconnects, black holes


@pytest.mark.parametrize(("at", "end_meanwhile"), [("request", 0), ("response", 1), (None, 1)])
def test_a_delay(rig: FaultRig, at: str | None, end_meanwhile: int) -> None:
    armed = rig.add(api="Produce", delay_ms=300, at=at)
    sent = rig.send(produced(T0), 9)
    rig.pass_ms(299)
    assert (sent.answer(), end_of(rig)) == (PENDING, end_meanwhile)
    assert rig.ask(fetched(T0), 12).responses[0].partitions[0].error_code == 0, "others do not wait"
    rig.pass_ms(1)
    assert (errors_of(sent.answer(), 9), end_of(rig)) == ({T0: 0}, 1)
    assert armed.describe()["held"] == 0


def test_a_delayed_request_may_wait_afterwards(rig: FaultRig) -> None:
    rig.add(api="Fetch", delay_ms=100, at="request", times=1)
    sent = rig.send(fetched(T0, max_wait_ms=500), 12)
    rig.pass_ms(100)
    assert sent.answer() == PENDING
    rig.ask(produced(T0), 9)
    assert b"v" in records_of(sent.answer()), "the produce wakes it"


def test_a_delayed_produce_completes_waiting_fetches(rig: FaultRig) -> None:
    waiting = rig.send(fetched(T0, max_wait_ms=5000), 12)
    rig.add(api="Produce", delay_ms=100, at="request")
    rig.send(produced(T0), 9)
    assert waiting.answer() == PENDING
    rig.pass_ms(100)
    assert b"v" in records_of(waiting.answer())


@pytest.mark.parametrize("at", ["request", "response"])
def test_a_removed_fault_releases_delayed_requests(rig: FaultRig, at: str) -> None:
    armed = rig.add(api="Produce", delay_ms=60_000, at=at)
    sent = rig.send(produced(T0), 9)
    assert (sent.answer(), armed.describe()["held"]) == (PENDING, 1)
    rig.engine.remove(armed.id)
    assert errors_of(sent.answer(), 9) == {T0: 0}
    rig.pass_ms(60_000)
    assert end_of(rig) == 1, "once"


def test_a_handler_can_be_held(rig: FaultRig) -> None:
    rig.add(api="Produce", delay_ms=1, holds_handler=True)
    assert errors_of(rig.ask(produced(T0), 9), 9) == {T0: 0}


@pytest.mark.parametrize(("at", "written"), [("request", 0), ("response", 1), (None, 1)])
def test_a_disconnect(rig: FaultRig, at: str | None, written: int) -> None:
    rig.add(api="Produce", disconnect=True, at=at, times=1)
    assert (rig.ask(produced(T0), 9), end_of(rig)) == (CLOSED, written)
    assert errors_of(rig.ask(produced(T0), 9), 9) == {T0: 0}


def test_a_black_hole(rig: FaultRig) -> None:
    armed = rig.add(client_id="victim", blackhole=True)
    sent = rig.send(produced(T0), 9, client_id="victim")
    rig.pass_ms(3_600_000)
    assert (sent.answer(), end_of(rig), armed.describe()["held"]) == (PENDING, 0, 1)
    assert errors_of(rig.ask(produced(T0), 9), 9) == {T0: 0}
    rig.engine.remove(armed.id)
    assert sent.answer() == CLOSED, "no connection hangs when the fault is gone"
    assert errors_of(rig.ask(produced(T0), 9, client_id="victim"), 9) == {T0: 0}


# Changed responses


def test_a_corrupt_batch(rig: FaultRig) -> None:
    rig.ask(produced(T0, T1), 9)
    armed = rig.add(topic="t", partition=0, corrupt=True, times=1)
    assert errors_of(rig.ask(produced(U0), 9), 9) == {U0: 0}
    assert rig.ask(fetched(U0, item={"fetch_offset": 1}), 12).responses[0].partitions[0].error_code == 0
    assert armed.trigger.calls == 0, "there was nothing to corrupt"
    response = rig.ask(fetched(T0, T1), 12)
    for index, is_broken in ((0, True), (1, False)):
        records = records_of(response, index)
        header = read_header(records)
        if is_broken:
            with pytest.raises(CorruptBatchError):
                verify_crc(records, 0, header)
        else:
            verify_crc(records, 0, header)
    whole = records_of(rig.ask(fetched(T0), 12))
    verify_crc(whole, 0, read_header(whole))


def test_a_throttle(rig: FaultRig) -> None:
    rig.add(api="Produce", throttle_ms=250)
    sent = rig.send(produced(T0), 9)
    assert (sent.answer().throttle_time_ms, sent.request.api_throttle_ms) == (250, 250)
    sent = rig.send(produced(T0, acks=0), 9)
    assert (sent.answer(), sent.request.api_throttle_ms) == (SILENT, 250)
    assert rig.ask(fetched(T0), 12).throttle_time_ms == 0
    rig.engine.remove_all()
    assert rig.ask(produced(T0), 9).throttle_time_ms == 0


def listed(response: Any) -> dict[int, int]:
    return {row.api_key: row.max_version for row in response.api_keys}


def test_an_older_release(rig: FaultRig) -> None:
    asked = versions_wire.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    now = rig.ask(asked, 3)
    rig.add(api_versions="2.8", client_id="old")
    then = rig.ask(asked, 3, client_id="old")
    assert then.error_code == 0
    for key, version in listed(now).items():
        highest = highest_version(key, "2.8")
        assert listed(then).get(key) == (None if highest is None else min(version, highest))
    assert (listed(then)[0], listed(then)[1], listed(then)[3]) == (9, 12, 11)
    assert 68 not in listed(then), "KIP-848 came later"
    assert ([f.name for f in now.supported_features], then.supported_features) != ([], [])
    assert listed(rig.ask(asked, 3)) == listed(now), "others are told the truth"
    assert errors_of(rig.ask(produced(T0), 9, client_id="old"), 9) == {T0: 0}
    assert rig.ask(produced(T0), 10, client_id="old") == CLOSED
    rig.engine.remove_all()
    assert listed(rig.ask(asked, 3, client_id="old")) == listed(now)
    assert errors_of(rig.ask(produced(T0), 10, client_id="old"), 10) == {T0: 0}


def test_an_older_release_rejects_later_api_versions(rig: FaultRig) -> None:
    rig.add(api_versions="2.8")
    asked = versions_wire.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    response = rig.ask(asked, 4)
    assert response.error_code == E.UNSUPPORTED_VERSION
    assert listed(response)[18] == 3


# The recorder


def test_requests_are_recorded(rig: FaultRig) -> None:
    rig.ask(produced(T0), 9)
    rig.recorder.start()
    rig.add(api="Produce", topic="t", partition=1, error="INVALID_RECORD")
    rig.add(client_id="victim", blackhole=True)
    rig.ask(produced(T0, T1), 9)
    rig.ask(produced(U0, acks=0), 9)
    rig.send(produced(T0), 9, client_id="victim")
    rig.ask(fetched(T0, max_wait_ms=0), 12)
    rig.ask(metadata_wire.MetadataRequest(topics=None), 12)
    rig.ask(fetch(0, topic="nowhere"), 12)
    told = [(r["api"], r["outcome"], r["errors"]) for r in rig.recorder.select({})]
    assert told == [
        ("Produce", "answered", ["INVALID_RECORD"]),
        ("Produce", "no answer", []),
        ("Produce", "pending", []),
        ("Fetch", "answered", []),
        ("Metadata", "answered", []),
        ("Fetch", "answered", ["UNKNOWN_TOPIC_OR_PARTITION"]),
    ]
    first = rig.recorder.select({})[0]
    assert first["partitions"] == [
        {"topic": "t", "partition": 0, "error": "NONE"},
        {"topic": "t", "partition": 1, "error": "INVALID_RECORD"},
    ]
    assert (first["client_id"], first["version"], first["connection"], first["node"]) == ("tester", 9, "c-1", 1)
    rig.recorder.stop()
    rig.ask(produced(T0), 9)
    assert len(rig.recorder.select({})) == 6


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({}, 3),
        ({"api": "produce"}, 2),
        ({"topic": "t"}, 2),
        ({"topic": "t", "partition": "1"}, 1),
        ({"client_id": "bill*"}, 1),
        ({"error": "UNKNOWN*"}, 1),
        ({"outcome": "closed"}, 0),
        ({"sender": "brokers"}, 0),
        ({"sender": "clients"}, 3),
        ({"after": "2"}, 1),
        ({"connection": "c-1"}, 3),
    ],
)
def test_records_can_be_filtered(rig: FaultRig, wanted: dict[str, str], count: int) -> None:
    rig.recorder.start()
    rig.ask(produced(T0, T1), 9)
    rig.ask(produced(("nowhere", 0)), 9, client_id="billing")
    rig.ask(fetched(T0), 12)
    assert len(rig.recorder.select(wanted)) == count


def test_the_recorder_keeps_the_last(rig: FaultRig) -> None:
    rig.recorder.start(capacity=2)
    for _ in range(3):
        rig.ask(produced(T0), 9)
    assert [record["sequence"] for record in rig.recorder.select({})] == [2, 3]
    rig.recorder.clear()
    assert rig.recorder.select({}) == []


def test_without_faults_and_recorder_the_api_is_called_directly(rig: FaultRig) -> None:
    armed = rig.add(api="Produce", delay_ms=10)
    rig.engine.remove(armed.id)
    sent = rig.send(produced(T0), 9)
    assert errors_of(sent.answer(), 9) == {T0: 0}
    assert sent.request.error_codes == [0], "as the API noted them"
