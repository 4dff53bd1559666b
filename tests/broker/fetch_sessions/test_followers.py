"""A follower whose partitions are idle is as much in sync as one whose partitions are read at every request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages import k01_fetch as wire
from tests.support.broker.broker_rig import BrokerRig, batch, fetch_changes, produce, state

COUNT = 40
TP = TopicPartition("t", 7)


class Follower:
    """Broker 2, in a session with broker 1, which leads all partitions."""

    def __init__(self, rig: BrokerRig) -> None:
        self.rig = rig
        self._session_id = 0
        self._epoch = 0

    def fetch(
        self, *changed: tuple[int, int], forgotten: tuple[int, ...] = (), wait_ms: int = 0, leader_epoch: int = 0
    ) -> Any:
        """Ask for these (partition, offset) and what the session has; returns the response, or a `Waiting`."""
        request = fetch_changes(
            ((partition, offset, leader_epoch, 0) for partition, offset in changed),
            forgotten,
            replica_state=wire.ReplicaState(replica_id=2, replica_epoch=33),
            max_wait_ms=wait_ms,
            session_id=self._session_id,
            session_epoch=self._epoch,
        )
        answer = self.rig.answer(request, 17)
        self._epoch += 1
        self._session_id = getattr(answer, "session_id", self._session_id)
        return answer

    def goes_on(self, ms: int) -> None:
        """Let time pass, in which nothing happens."""
        for _ in range(ms // 500):
            self.rig.advance_ms(500)
            self.fetch()

    @property
    def idle(self) -> int:
        (session,) = self.rig.services.fetch_sessions._sessions.values()
        return len(session.idle)


@pytest.fixture
def follower() -> Iterator[Follower]:
    """Its partitions have been idle for an hour, or a minute of it."""
    rig = BrokerRig()
    rig.push({"t": [state(1, (1, 2)) for _ in range(COUNT)]})
    made = Follower(rig)
    made.fetch(*((partition, 0) for partition in range(COUNT)))
    made.goes_on(60_000)
    assert made.idle == COUNT
    yield made
    rig.close()


def append(rig: BrokerRig) -> None:
    """Append as a handler does, which has not come to wake anybody yet."""
    rig.manager.append_one(TP, memoryview(bytearray(batch(b"a"))), required_acks=1, origin=AppendOrigin.CLIENT)


def shrunk(rig: BrokerRig) -> list[TopicPartition]:
    rig.manager.maybe_shrink_isrs()
    return [tp for tp, _, _ in rig.isr_changes.submitted]


def test_a_look_at_the_isrs_right_after_an_append_finds_it_in_sync(follower: Follower) -> None:
    append(follower.rig)
    assert shrunk(follower.rig) == []
    follower.rig.advance_ms(30_001)
    assert shrunk(follower.rig) == [TP], "it has fetched nothing since"


def test_nor_does_it_lag_while_its_request_is_answered(follower: Follower) -> None:
    """The partition is woken, but the handler that woke it has not told its leader of the last fetch yet."""
    (session,) = follower.rig.services.fetch_sessions._sessions.values()
    append(follower.rig)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(follower.rig.manager.partition(TP)), "note_still_fetched", lambda *_: None)
        follower.rig.manager.complete_delayed(TP)
    assert list(session._woken)
    assert shrunk(follower.rig) == []


def test_a_partition_that_it_forgets_was_fetched_until_then(follower: Follower) -> None:
    """It may fetch it in another session from now on: by another of its threads."""
    follower.fetch(forgotten=(7,))
    follower.rig.answer(produce(batch(b"a"), partition=7), 9)
    assert shrunk(follower.rig) == []


def test_so_were_all_that_it_forgets(follower: Follower) -> None:
    follower.fetch(forgotten=tuple(range(COUNT)))
    follower.rig.answer(produce(batch(b"a"), partition=7), 9)
    assert shrunk(follower.rig) == []


def test_fetches_of_another_leader_epoch_do_not_count(follower: Follower) -> None:
    """The watermark waits for followers outside the ISR that have caught up in this epoch."""
    states = [state(1, (1, 2), (1,), leader_epoch=1, partition_epoch=1) for _ in range(COUNT)]
    follower.rig.push({"t": states})
    (known,) = follower.rig.manager.partition(TP).followers
    assert known.last_caught_up_ms == 0
