"""What each fault does to a request, on a broker with real logs: only where it should, and not once it is removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.common.topic_partition import TopicPartition
from barnabas.faults.definition import Fault, FaultError
from barnabas.faults.versions import highest_version
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages import k01_fetch as fetch_wire
from barnabas.protocol.messages import k02_list_offsets as offsets_wire
from barnabas.protocol.messages import k03_metadata as metadata_wire
from barnabas.protocol.messages import k18_api_versions as versions_wire
from barnabas.protocol.messages import k22_init_producer_id as init_wire
from barnabas.protocol.records.batch import CorruptBatchError, read_header, verify_crc
from tests.broker.faults.fault_room import CLOSED, PENDING, SILENT, FaultRoom, errors_of
from tests.support.broker_room import batch, fetch, produce, state, topic_id

E = ErrorCode
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


@pytest.fixture
def room() -> Iterator[FaultRoom]:
    made = FaultRoom()
    made.push({"t": [state(1), state(1)], "u": [state(1)]})
    yield made
    made.engine.remove_all()
    made.close()


def produced(*places: tuple[str, int], acks: int = 1) -> Any:
    """A Produce request with a batch for each of these partitions."""
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
    """A Fetch request from the start of each of these partitions."""
    request = fetch(0, topic=places[0][0], partition=places[0][1], **about)
    for name, index in places[1:]:
        request.topics += fetch(0, topic=name, partition=index).topics
    return request


def end_of(room: FaultRoom, place: tuple[str, int] = T0) -> int:
    held = room.manager.find(TopicPartition(*place))
    assert held is not None
    assert held.log is not None
    return int(held.log.log_end_offset)


def records_of(response: Any, index: int = 0) -> bytes:
    data = next(p for topic in response.responses for p in topic.partitions if p.partition_index == index)
    return bytes(data.records)


# Errors


@pytest.mark.parametrize("version", range(3, 14))
def test_a_partition_of_a_produce_fails_and_the_others_are_written(room: FaultRoom, version: int) -> None:
    armed = room.add(api="Produce", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    response = room.ask(produced(T0, T1, U0), version)
    assert errors_of(response, version) == {T0: 0, T1: E.NOT_LEADER_OR_FOLLOWER, U0: 0}
    assert [end_of(room, place) for place in (T0, T1, U0)] == [1, 0, 1], "the faulted one is not carried out"
    assert armed.describe()["events"][0]["partitions"] == [["t", 1]]
    assert errors_of(room.ask(produced(T0, U0), version), version) == {T0: 0, U0: 0}
    assert armed.trigger.fired == 1
    room.engine.remove(armed.id)
    assert errors_of(room.ask(produced(T1), version), version) == {T1: 0}


def test_an_error_without_a_topic_is_of_the_whole_request(room: FaultRoom) -> None:
    armed = room.add(api=["Produce", "InitProducerId"], error="REQUEST_TIMED_OUT")
    assert set(errors_of(room.ask(produced(T0, T1, U0), 9), 9).values()) == {E.REQUEST_TIMED_OUT}
    assert end_of(room) == 0
    assert room.ask(init_wire.InitProducerIdRequest(), 4).error_code == E.REQUEST_TIMED_OUT
    assert armed.trigger.fired == 2
    assert room.ask(fetched(T0), 12).responses[0].partitions[0].error_code == 0


def test_every_partition_of_a_request_may_be_met(room: FaultRoom) -> None:
    room.add(topic="t*", error="KAFKA_STORAGE_ERROR")
    assert errors_of(room.ask(produced(T0, T1), 9), 9) == dict.fromkeys((T0, T1), E.KAFKA_STORAGE_ERROR)
    assert (end_of(room, T0), end_of(room, T1)) == (0, 0)


def test_what_could_not_be_read_is_not_answered_either(room: FaultRoom) -> None:
    room.add(api="ApiVersions", error="INVALID_REQUEST")
    asked = versions_wire.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    sent = room.send(asked, 4)
    assert sent.answer().error_code == E.INVALID_REQUEST
    frame = bytearray(encode_request(RequestHeader(18, 3, 1, "x"), asked)[4:])
    frame[2:4] = (99).to_bytes(2, "big")
    assert room.send_frame(frame).answer() == CLOSED


def test_two_faults_share_a_request(room: FaultRoom) -> None:
    room.add(api="Produce", topic="t", partition=0, error="CORRUPT_MESSAGE")
    room.add(api="Produce", topic="u", error="MESSAGE_TOO_LARGE")
    errors = errors_of(room.ask(produced(T0, T1, U0), 9), 9)
    assert errors == {T0: E.CORRUPT_MESSAGE, T1: 0, U0: E.MESSAGE_TOO_LARGE}


def test_a_produce_that_waits_for_replicas_is_told_of_the_fault_then(room: FaultRoom) -> None:
    room.push({"r": [state(1, (1, 2))]})
    room.add(api="Produce", topic="t", error="INVALID_RECORD")
    sent = room.send(produced(("r", 0), T0, acks=-1), 9)
    assert sent.answer() == PENDING
    room.pass_ms(1001)
    assert errors_of(sent.answer(), 9) == {("r", 0): E.REQUEST_TIMED_OUT, T0: E.INVALID_RECORD}


def test_a_produce_without_an_answer_loses_its_connection(room: FaultRoom) -> None:
    assert room.ask(produced(T0, acks=0), 9) == SILENT
    room.add(api="Produce", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    assert room.ask(produced(T0, T1, acks=0), 9) == CLOSED
    assert (end_of(room, T0), end_of(room, T1)) == (2, 0)
    room.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER")
    assert room.ask(produced(T0, acks=0), 9) == CLOSED
    assert end_of(room, T0) == 2


def test_errors_are_counted_as_real_ones_are(room: FaultRoom) -> None:
    room.add(api="Produce", topic="t", error="INVALID_RECORD")
    sent = room.send(produced(T0, U0), 9)
    sent.answer()
    assert sent.request.ok_count == 1, "the other partition's"


@pytest.mark.parametrize("version", range(4, 19))
def test_a_partition_of_a_fetch_fails_and_the_others_are_read(room: FaultRoom, version: int) -> None:
    room.ask(produced(T0, T1), 9)
    armed = room.add(api="Fetch", topic="t", partition=1, error="OFFSET_OUT_OF_RANGE")
    response = room.ask(fetched(T0, T1, session_id=0, session_epoch=-1), version)
    assert errors_of(response, version) == {T0: 0, T1: E.OFFSET_OUT_OF_RANGE}
    assert b"v" in records_of(response)
    assert records_of(response, 1) == b""
    room.engine.remove(armed.id)
    response = room.ask(fetched(T0, T1, session_id=0, session_epoch=-1), version)
    assert errors_of(response, version) == {T0: 0, T1: 0}


def test_a_fetch_session_is_met_by_what_it_remembers(room: FaultRoom) -> None:
    room.ask(produced(T0), 9)
    first = room.ask(fetched(T0, T1, session_id=0, session_epoch=0), 12)
    session = {"session_id": first.session_id, "session_epoch": 1}
    armed = room.add(api="Fetch", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    nothing_named = fetch_wire.FetchRequest(max_wait_ms=500, min_bytes=1, **session)
    response = room.ask(nothing_named, 12)
    assert errors_of(response, 12)[T1] == E.NOT_LEADER_OR_FOLLOWER, "and it does not wait"
    room.engine.remove(armed.id)
    session["session_epoch"] = 2
    response = room.ask(fetch_wire.FetchRequest(max_wait_ms=0, min_bytes=1, **session), 12)
    assert errors_of(response, 12)[T1] == 0, "the session knows that the client was told an error"


def test_a_session_that_forgets_a_partition_is_not_met_by_it(room: FaultRoom) -> None:
    first = room.ask(fetched(T0, T1, session_id=0, session_epoch=0), 12)
    armed = room.add(api="Fetch", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    forgetting = fetch_wire.FetchRequest(
        max_wait_ms=0,
        session_id=first.session_id,
        session_epoch=1,
        forgotten_topics_data=[fetch_wire.ForgottenTopic(topic="t", topic_id=topic_id("t"), partitions=[1])],
    )
    assert errors_of(room.ask(forgetting, 12), 12) == {}
    assert armed.trigger.calls == 0


def test_errors_of_a_fetch_session_are_at_the_top(room: FaultRoom) -> None:
    room.add(api="Fetch", error="FETCH_SESSION_ID_NOT_FOUND", times=1)
    assert room.ask(fetched(T0), 12).error_code == E.FETCH_SESSION_ID_NOT_FOUND
    assert room.ask(fetched(T0), 12).error_code == 0


def test_followers_are_left_alone_unless_they_are_meant(room: FaultRoom) -> None:
    room.push({"r": [state(1, (1, 2))]})
    follower: dict[str, Any] = {"client_id": "broker-2-fetcher-0"}
    request = fetch(0, topic="r", replica_id=2)
    armed = room.add(api="Fetch", error="KAFKA_STORAGE_ERROR")
    assert errors_of(room.ask(request, 12, **follower), 12) == {("r", 0): 0}
    assert armed.trigger.calls == 0
    room.engine.remove_all()
    room.add(api="Fetch", error="KAFKA_STORAGE_ERROR", sender="brokers")
    assert errors_of(room.ask(request, 12, **follower), 12) == {("r", 0): E.KAFKA_STORAGE_ERROR}
    assert errors_of(room.ask(fetched(("r", 0)), 12), 12) == {("r", 0): 0}, "clients are not"


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12, 13])
def test_metadata_of_all_topics_is_answered_but_for_the_one(room: FaultRoom, version: int) -> None:
    room.add(api="Metadata", topic="u", error="LEADER_NOT_AVAILABLE")
    everything = metadata_wire.MetadataRequest(topics=[] if version == 0 else None)
    topics = {topic.name: topic for topic in room.ask(everything, version).topics}
    assert {name: topic.error_code for name, topic in topics.items()} == {"t": 0, "u": E.LEADER_NOT_AVAILABLE}
    assert (len(topics["t"].partitions), len(topics["u"].partitions)) == (2, 0)
    named = metadata_wire.MetadataRequest(topics=[metadata_wire.MetadataRequestTopic(name=name) for name in "tu"])
    topics = {topic.name: topic for topic in room.ask(named, version).topics}
    assert {name: topic.error_code for name, topic in topics.items()} == {"t": 0, "u": E.LEADER_NOT_AVAILABLE}


def test_list_offsets_of_one_partition(room: FaultRoom) -> None:
    room.add(topic="t", partition=0, error="UNKNOWN_LEADER_EPOCH")
    parts = [offsets_wire.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
    request = offsets_wire.ListOffsetsRequest(
        replica_id=-1, topics=[offsets_wire.ListOffsetsTopic(name="t", partitions=parts)]
    )
    (topic,) = room.ask(request, 7).topics
    assert {p.partition_index: p.error_code for p in topic.partitions} == {0: E.UNKNOWN_LEADER_EPOCH, 1: 0}


# Whom it meets, and when


def test_whom_a_fault_meets(room: FaultRoom) -> None:
    armed = room.add(api="Produce", client_id="billing-*", error="INVALID_RECORD")
    assert errors_of(room.ask(produced(T0), 9), 9) == {T0: 0}
    assert errors_of(room.ask(produced(T0), 9, client_id="billing-7"), 9) == {T0: E.INVALID_RECORD}
    room.engine.remove(armed.id)
    room.add(connection="c-2", error="INVALID_RECORD")
    assert errors_of(room.ask(produced(T0), 9), 9) == {T0: 0}
    assert errors_of(room.ask(produced(T0), 9, connection="c-2"), 9) == {T0: E.INVALID_RECORD}
    room.engine.remove_all()
    for about in ({"listener": "SECRET"}, {"principal": "User:admin"}, {"group": "g"}):
        room.add(error="INVALID_RECORD", **about)
    assert errors_of(room.ask(produced(T0), 9), 9) == {T0: 0}
    room.add(error="INVALID_RECORD", listener="PLAIN*", principal="User:*")
    assert errors_of(room.ask(produced(T0), 9), 9) == {T0: E.INVALID_RECORD}


def test_a_fault_of_another_node_is_refused(room: FaultRoom) -> None:
    with pytest.raises(FaultError, match="this is node 1, and the fault is for node 2"):
        room.add(node=2, error="INVALID_RECORD")
    with pytest.raises(FaultError, match="no link to itself"):
        room.add(cut=1)
    room.add(node=1, error="INVALID_RECORD")
    assert len(room.engine.faults()) == 1


def test_all_faults_of_a_list_are_added_or_none(room: FaultRoom) -> None:
    with pytest.raises(FaultError):
        room.engine.add_all([Fault(error="INVALID_RECORD"), Fault(node=2, error="INVALID_RECORD")])
    assert room.engine.faults() == []


def test_what_is_in_an_envelope_has_met_the_faults_outside(room: FaultRoom) -> None:
    room.add(error="INVALID_RECORD", sender="any")
    inner = room.request(metadata_wire.MetadataRequest(topics=None), 12)
    answer = room.engine.wrap(TABLE)[3].handle(room.services, inner)
    assert {topic.error_code for topic in answer.message.topics} == {0}


def test_faults_that_are_spent_do_not_pile_up(room: FaultRoom) -> None:
    for _ in range(300):
        room.add(api="Produce", error="INVALID_RECORD", times=1)
        room.ask(produced(T0), 9)
    assert len(room.engine.faults()) <= 201
    assert errors_of(room.ask(produced(T0), 9), 9) == {T0: 0}


# Delays, disconnects, black holes


@pytest.mark.parametrize(("at", "end_meanwhile"), [("request", 0), ("response", 1), (None, 1)])
def test_a_delay(room: FaultRoom, at: str | None, end_meanwhile: int) -> None:
    armed = room.add(api="Produce", delay_ms=300, at=at)
    sent = room.send(produced(T0), 9)
    room.pass_ms(299)
    assert (sent.answer(), end_of(room)) == (PENDING, end_meanwhile)
    assert room.ask(fetched(T0), 12).responses[0].partitions[0].error_code == 0, "others do not wait"
    room.pass_ms(1)
    assert (errors_of(sent.answer(), 9), end_of(room)) == ({T0: 0}, 1)
    assert armed.describe()["held"] == 0


def test_a_delayed_request_may_wait_for_something_afterwards(room: FaultRoom) -> None:
    room.add(api="Fetch", delay_ms=100, at="request", times=1)
    sent = room.send(fetched(T0, max_wait_ms=500), 12)
    room.pass_ms(100)
    assert sent.answer() == PENDING
    room.ask(produced(T0), 9)
    assert b"v" in records_of(sent.answer()), "the produce wakes it"


def test_a_delayed_produce_wakes_who_waits_for_it(room: FaultRoom) -> None:
    waiting = room.send(fetched(T0, max_wait_ms=5000), 12)
    room.add(api="Produce", delay_ms=100, at="request")
    room.send(produced(T0), 9)
    assert waiting.answer() == PENDING
    room.pass_ms(100)
    assert b"v" in records_of(waiting.answer())


@pytest.mark.parametrize("at", ["request", "response"])
def test_a_fault_that_is_removed_lets_go_of_what_it_delays(room: FaultRoom, at: str) -> None:
    armed = room.add(api="Produce", delay_ms=60_000, at=at)
    sent = room.send(produced(T0), 9)
    assert (sent.answer(), armed.describe()["held"]) == (PENDING, 1)
    room.engine.remove(armed.id)
    assert errors_of(sent.answer(), 9) == {T0: 0}
    room.pass_ms(60_000)
    assert end_of(room) == 1, "once"


def test_a_handler_can_be_held(room: FaultRoom) -> None:
    room.add(api="Produce", delay_ms=1, holds_handler=True)
    assert errors_of(room.ask(produced(T0), 9), 9) == {T0: 0}


@pytest.mark.parametrize(("at", "written"), [("request", 0), ("response", 1), (None, 1)])
def test_a_disconnect(room: FaultRoom, at: str | None, written: int) -> None:
    room.add(api="Produce", disconnect=True, at=at, times=1)
    assert (room.ask(produced(T0), 9), end_of(room)) == (CLOSED, written)
    assert errors_of(room.ask(produced(T0), 9), 9) == {T0: 0}


def test_a_black_hole(room: FaultRoom) -> None:
    armed = room.add(client_id="victim", blackhole=True)
    sent = room.send(produced(T0), 9, client_id="victim")
    room.pass_ms(3_600_000)
    assert (sent.answer(), end_of(room), armed.describe()["held"]) == (PENDING, 0, 1)
    assert errors_of(room.ask(produced(T0), 9), 9) == {T0: 0}
    room.engine.remove(armed.id)
    assert sent.answer() == CLOSED, "no connection hangs when the fault is gone"
    assert errors_of(room.ask(produced(T0), 9, client_id="victim"), 9) == {T0: 0}


# What answers carry


def test_a_corrupt_batch(room: FaultRoom) -> None:
    room.ask(produced(T0, T1), 9)
    armed = room.add(topic="t", partition=0, corrupt=True, times=1)
    assert errors_of(room.ask(produced(U0), 9), 9) == {U0: 0}
    assert room.ask(fetched(U0, item={"fetch_offset": 1}), 12).responses[0].partitions[0].error_code == 0
    assert armed.trigger.calls == 0, "there was nothing to corrupt"
    response = room.ask(fetched(T0, T1), 12)
    for index, is_broken in ((0, True), (1, False)):
        records = records_of(response, index)
        header = read_header(records)
        if is_broken:
            with pytest.raises(CorruptBatchError):
                verify_crc(records, 0, header)
        else:
            verify_crc(records, 0, header)
    whole = records_of(room.ask(fetched(T0), 12))
    verify_crc(whole, 0, read_header(whole))


def test_a_throttle(room: FaultRoom) -> None:
    room.add(api="Produce", throttle_ms=250)
    sent = room.send(produced(T0), 9)
    assert (sent.answer().throttle_time_ms, sent.request.api_throttle_ms) == (250, 250)
    sent = room.send(produced(T0, acks=0), 9)
    assert (sent.answer(), sent.request.api_throttle_ms) == (SILENT, 250)
    assert room.ask(fetched(T0), 12).throttle_time_ms == 0
    room.engine.remove_all()
    assert room.ask(produced(T0), 9).throttle_time_ms == 0


def listed(response: Any) -> dict[int, int]:
    return {row.api_key: row.max_version for row in response.api_keys}


def test_an_older_release(room: FaultRoom) -> None:
    asked = versions_wire.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    now = room.ask(asked, 3)
    room.add(api_versions="2.8", client_id="old")
    then = room.ask(asked, 3, client_id="old")
    assert then.error_code == 0
    for key, version in listed(now).items():
        highest = highest_version(key, "2.8")
        assert listed(then).get(key) == (None if highest is None else min(version, highest))
    assert (listed(then)[0], listed(then)[1], listed(then)[3]) == (9, 12, 11)
    assert 68 not in listed(then), "KIP-848 came later"
    assert ([f.name for f in now.supported_features], then.supported_features) != ([], [])
    assert listed(room.ask(asked, 3)) == listed(now), "others are told the truth"
    assert errors_of(room.ask(produced(T0), 9, client_id="old"), 9) == {T0: 0}
    assert room.ask(produced(T0), 10, client_id="old") == CLOSED
    room.engine.remove_all()
    assert listed(room.ask(asked, 3, client_id="old")) == listed(now)
    assert errors_of(room.ask(produced(T0), 10, client_id="old"), 10) == {T0: 0}


def test_an_older_release_knows_no_later_api_versions(room: FaultRoom) -> None:
    room.add(api_versions="2.8")
    asked = versions_wire.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    response = room.ask(asked, 4)
    assert response.error_code == E.UNSUPPORTED_VERSION
    assert listed(response)[18] == 3


# The recorder


def test_requests_are_recorded(room: FaultRoom) -> None:
    room.ask(produced(T0), 9)
    room.recorder.start()
    room.add(api="Produce", topic="t", partition=1, error="INVALID_RECORD")
    room.add(client_id="victim", blackhole=True)
    room.ask(produced(T0, T1), 9)
    room.ask(produced(U0, acks=0), 9)
    room.send(produced(T0), 9, client_id="victim")
    room.ask(fetched(T0, max_wait_ms=0), 12)
    room.ask(metadata_wire.MetadataRequest(topics=None), 12)
    room.ask(fetch(0, topic="nowhere"), 12)
    told = [(r["api"], r["outcome"], r["errors"]) for r in room.recorder.select({})]
    assert told == [
        ("Produce", "answered", ["INVALID_RECORD"]),
        ("Produce", "no answer", []),
        ("Produce", "pending", []),
        ("Fetch", "answered", []),
        ("Metadata", "answered", []),
        ("Fetch", "answered", ["UNKNOWN_TOPIC_OR_PARTITION"]),
    ]
    first = room.recorder.select({})[0]
    assert first["partitions"] == [
        {"topic": "t", "partition": 0, "error": "NONE"},
        {"topic": "t", "partition": 1, "error": "INVALID_RECORD"},
    ]
    assert (first["client_id"], first["version"], first["connection"], first["node"]) == ("tester", 9, "c-1", 1)
    room.recorder.stop()
    room.ask(produced(T0), 9)
    assert len(room.recorder.select({})) == 6


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
def test_what_was_recorded_can_be_chosen(room: FaultRoom, wanted: dict[str, str], count: int) -> None:
    room.recorder.start()
    room.ask(produced(T0, T1), 9)
    room.ask(produced(("nowhere", 0)), 9, client_id="billing")
    room.ask(fetched(T0), 12)
    assert len(room.recorder.select(wanted)) == count


def test_the_recorder_keeps_the_last(room: FaultRoom) -> None:
    room.recorder.start(capacity=2)
    for _ in range(3):
        room.ask(produced(T0), 9)
    assert [record["sequence"] for record in room.recorder.select({})] == [2, 3]
    room.recorder.clear()
    assert room.recorder.select({}) == []


def test_without_faults_and_recorder_the_api_is_called_straight(room: FaultRoom) -> None:
    armed = room.add(api="Produce", delay_ms=10)
    room.engine.remove(armed.id)
    sent = room.send(produced(T0), 9)
    assert errors_of(sent.answer(), 9) == {T0: 0}
    assert sent.request.error_codes == [0], "as the API noted them"
