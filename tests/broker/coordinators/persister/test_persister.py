"""The persister: where operations go, how often they are tried, and what survives failovers.

Tests `coordinators/persister/wire.py`, too.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.coordinators.persister import wire
from barnabas.broker.coordinators.persister.persister import GIVE_UP_MS
from barnabas.broker.coordinators.share_state import operations as op
from barnabas.broker.coordinators.share_state.values import (
    SharePartitionKey,
    StateBatch,
    StateRead,
    StateSummary,
    StateWrite,
)
from barnabas.broker.metadata.metadata_cache import SHARE_GROUP_STATE_TOPIC
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.persister.persister_rig import KEYS, PersisterRig

NONE, UNAVAILABLE = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE
K = KEYS[0]


@pytest.fixture(params=[0, 1], ids=["own coordinator", "another broker"])
def rig(request: pytest.FixtureRequest) -> PersisterRig:
    """A persister that knows its share partitions' coordinator, which has their state."""
    rig = PersisterRig(request.param)
    answers = [rig.initialize(key) for key in KEYS]
    rig.run()
    assert answers == [[NONE]] * len(KEYS)
    return rig


def test_a_share_partition_from_beginning_to_end(rig: PersisterRig) -> None:
    written = rig.write(0, 4, start_offset=2)
    assert written == [], "no method waits"
    read, summary = rig.read(), rig.read_summary()
    rig.run()
    assert written == [NONE]
    assert read == [StateRead(NONE, 1, 2, (StateBatch(2, 4, 2, 1),))]
    assert summary == [StateSummary(NONE, 1, 0, 2, 4)]
    deleted, gone = rig.delete(), rig.read()
    rig.run()
    assert deleted == [NONE]
    assert gone == [StateRead(ErrorCode.INVALID_REQUEST)]
    assert rig.persister.on_the_way() == 0


def test_errors_that_do_not_pass_are_answered_at_once(rig: PersisterRig) -> None:
    fenced = rig.initialize(state_epoch=0)
    rig.run()
    assert fenced == [ErrorCode.FENCED_STATE_EPOCH]
    newer, older = rig.read(leader_epoch=3), rig.read(leader_epoch=2)
    rig.run()
    assert newer[0].error == NONE
    assert older == [StateRead(ErrorCode.FENCED_LEADER_EPOCH)]


def test_what_comes_together_goes_together() -> None:
    rig = PersisterRig()
    for key in KEYS:
        rig.initialize(key)
    rig.carry()
    sent = rig.connections[1].sent
    assert [(message.group_id, len(message.topics[0].partitions)) for message in sent] == [("g", 3), ("h", 3)]


def test_a_busy_share_partition_sends_one_write_for_many(rig: PersisterRig) -> None:
    answers = [rig.write(n, n) for n in range(10)]
    rig.run()
    assert answers == [[NONE]] * 10
    assert rig.state.kinds()[-2:] == "uu", "the first, and the other nine"
    read = rig.read()
    rig.run()
    assert read == [StateRead(NONE, 1, 0, (StateBatch(0, 9, 2, 1),))]


def test_it_follows_its_coordinator(rig: PersisterRig) -> None:
    rig.move(2)
    written = rig.write(0, 4)
    rig.run()
    assert written == [NONE]
    assert rig.connections[2].sent


def test_what_waited_for_a_broker_goes_to_the_one_that_took_over() -> None:
    rig = PersisterRig(1)
    initialized = rig.initialize()
    rig.move(2)
    assert rig.carry() == [1]
    assert rig.connections[1].sent == [], "it may be dead: a request to it would wait for its timeout"
    rig.run()
    assert initialized == [NONE]


def test_it_retries_until_it_knows_the_new_coordinator(rig: PersisterRig) -> None:
    rig.move(2, is_known=False)
    written = rig.write(0, 4)
    rig.run(3000)
    assert written == []
    rig.know(2)
    rig.run(1000)
    assert written == [NONE]


@pytest.mark.parametrize("lost", ["request", "response"])
def test_an_exchange_that_fails_is_repeated(lost: str) -> None:
    rig = PersisterRig()
    initialized = rig.initialize()
    rig.loses = [lost, lost]
    rig.run(1000)
    assert initialized == [NONE]


def test_it_gives_up_in_time(rig: PersisterRig) -> None:
    rig.state.shard.close()
    first, second = rig.write(0, 4), rig.write(5, 9)
    rig.run(GIVE_UP_MS - 1100)
    assert first == []
    rig.run(1200)
    assert first == [ErrorCode.NOT_COORDINATOR]
    assert second == [], "its own time began when its turn came"
    rig.run(GIVE_UP_MS)
    assert second == [ErrorCode.NOT_COORDINATOR]


def test_a_deletion_of_a_former_group_coordinator_is_not_tried_again(rig: PersisterRig) -> None:
    rig.move(2, is_known=False)
    leads = [True]
    deleted = rig.delete(is_wanted=lambda: bool(leads))
    rig.run(1000)
    leads.clear()
    rig.know(2)
    rig.run(2000)
    assert deleted == [ErrorCode.NOT_COORDINATOR]
    read = rig.read()
    rig.run()
    assert read == [StateRead(NONE, 1, -1)]


def test_what_is_overdue_is_not_sent(rig: PersisterRig) -> None:
    deleted = rig.delete()
    rig.clock.advance_ms(GIVE_UP_MS + 1)  # the process was paused
    rig.run()
    assert deleted == [UNAVAILABLE]
    read = rig.read()
    rig.run()
    assert read == [StateRead(NONE, 1, -1)]


def test_a_topic_that_is_not_known_is_retried_and_then_said(rig: PersisterRig) -> None:
    rig.state.known.clear()
    deleted = rig.delete()
    rig.run(GIVE_UP_MS)
    assert deleted == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_the_first_operation_creates_the_topic() -> None:
    rig = PersisterRig()
    rig.know(None)
    initialized = rig.initialize()
    rig.run(300)
    assert set(rig.created) == {SHARE_GROUP_STATE_TOPIC}
    rig.know(1)
    rig.run(1000)
    assert initialized == [NONE]


def test_a_coordinator_without_an_address_is_waited_for() -> None:
    rig = PersisterRig()
    rig.know(7)
    initialized = rig.initialize()
    rig.run(300)
    assert initialized == []
    assert rig.created == []
    rig.know(1)
    rig.connections[1], connection = None, rig.connections[1]
    rig.run(1000)
    assert initialized == []
    rig.connections[1] = connection
    rig.run(1000)
    assert initialized == [NONE]


def test_a_bug_of_the_coordinator_is_answered() -> None:
    rig = PersisterRig(0)
    rig.breaks = True
    answers = [rig.initialize(), rig.write(0, 4)]
    rig.run()
    assert answers == [[ErrorCode.UNKNOWN_SERVER_ERROR]] * 2


def test_what_cannot_be_encoded_is_answered() -> None:
    rig = PersisterRig()
    answers = rig.initialize(state_epoch=1 << 40)
    rig.run()
    assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_bug_of_a_receiver_does_not_hold_the_others_up(rig: PersisterRig) -> None:
    rig.persister.delete(K, lambda _error: 1 // 0, op.always)
    initialized = rig.initialize()
    rig.run()
    assert initialized == [NONE]


def test_at_the_end_everything_is_answered() -> None:
    rig = PersisterRig()
    answers = [rig.initialize(), rig.write(0, 4), rig.read(), rig.initialize(KEYS[1])]
    rig.carry()  # the first two shares partitions' operations are answered; the next of one of them waits
    rig.persister.shutdown()
    assert answers[0] == answers[3] == [NONE]
    assert answers[1:3] == [[UNAVAILABLE], [StateRead(UNAVAILABLE)]]
    late = rig.read()
    assert late == [], "a caller may hold a lock that the answer wants"
    rig.run()
    assert late == [StateRead(UNAVAILABLE)]
    assert rig.queued.is_closed


def test_an_answer_after_the_end_is_dropped() -> None:
    rig = PersisterRig()
    rig.loses = ["response"]
    answers = rig.initialize()
    rig.carry()  # the next attempt waits for its time
    rig.persister.shutdown()
    rig.run(1000)
    assert answers == [UNAVAILABLE]


@given(st.data())
def test_no_answered_write_is_lost_over_failovers(data: st.DataObject) -> None:
    """Requests and responses are lost, coordinators move, and late or repeated writes arrive in between."""
    rig = PersisterRig()
    initialized = [rig.initialize(key) for key in KEYS[:2]]
    rig.run()
    assert initialized == [[NONE]] * 2
    starts = dict.fromkeys(KEYS[:2], 0)
    written: list[tuple[SharePartitionKey, int, int, list[Any]]] = []
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(("write", "write", "write", "lose", "move", "carry", "wait", "late")))
        if step == "write":
            key = data.draw(st.sampled_from(KEYS[:2]))
            starts[key] += data.draw(st.integers(0, 2))
            offset = starts[key] + data.draw(st.integers(0, 4))
            written.append((key, starts[key], offset, rig.write(offset, offset, key, start_offset=starts[key])))
        elif step == "lose":
            rig.loses.append(data.draw(st.sampled_from(("request", "response"))))
        elif step == "move":
            rig.move(data.draw(st.integers(0, 2)), is_known=data.draw(st.booleans()))
        elif step == "carry":
            rig.carry()
        elif step == "late" and rig.connections[1].sent:
            rig.connections[1].again(data.draw(st.integers(0, 100)))
        else:
            rig.run(data.draw(st.integers(0, 400)))
    rig.know(rig.leader)
    rig.loses.clear()
    rig.run(GIVE_UP_MS)
    assert all(answers == [NONE] for *_, answers in written)
    rig.move(2)
    reads = {key: rig.read(key) for key in KEYS[:2]}
    rig.run()
    for key, (read,) in reads.items():
        assert read.start_offset == (starts[key] if any(of == key for of, *_ in written) else -1)
        kept = {offset for batch in read.batches for offset in range(batch.first_offset, batch.last_offset + 1)}
        assert kept == {offset for of, _, offset, _ in written if of == key and offset >= starts[key]}


# -- requests


def test_requests_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PARTITIONS_MAX", 3)
    monkeypatch.setattr(wire, "BATCHES_MAX", 4)

    def write(n: int, batches: int) -> op.Write:
        return op.Write(
            SharePartitionKey("g", bytes(16), n), print, StateWrite(0, 0, 0, (StateBatch(0, 0, 2, 1),) * batches)
        )

    some = [write(0, 1), write(1, 1), write(2, 9), write(3, 4), write(4, 0), write(5, 0), write(6, 0)]
    parts = [[each.key.partition for each in part] for part in wire.together(some)]
    assert parts == [[0, 1], [2], [3, 4, 5], [6]]
