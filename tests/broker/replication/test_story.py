"""The story of LEO, HW and ISR in docs/internals/replication.md, as a readable transcript.

`leo_hw_isr.txt` lists events of broker 1's replica of a partition, and after each event the state of that replica. A
real broker without sockets and threads carries out the events; the state is written from its `Partition`.
`WRITE_TRANSCRIPTS=1 pytest ...` writes the file again; a change is reviewed as a diff.

Events
    lead EPOCH isr IDS               the controller's push: this broker leads
    follow ID EPOCH                  the push: broker ID leads
    produce VALUES                   a request with acks=all
    fetch ID OFFSET                  follower ID fetches from OFFSET on
    wait MS                          time passes, and the ISR timer runs
    accepted | refused ERROR         the controller's answer to the oldest proposal
    pushed                           the push of the last proposal that was accepted
    copy EPOCH VALUES hw OFFSET      the leader sends VALUES to this follower
    diverges EPOCH END               the leader's epoch ended there: this follower truncates its log
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.replication.fetching.fetch_state import truncation_offset
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.role import EpochEnd, IsrOutcome
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state
from tests.support.broker.parked import Waiting

TRANSCRIPT = Path(__file__).with_name("leo_hw_isr.txt")
TP = TopicPartition("t", 0)
REPLICAS = (1, 2, 3)
FETCH_VERSION = 17
PRODUCE_VERSION = 9


class Stage:
    """Carries out events in order."""

    def __init__(self) -> None:
        self.rig = BrokerRig(min_insync_replicas="2", replica_lag_time_max_ms="1000")
        self._partition_epoch = -1
        self._accepted_isr: tuple[int, ...] = ()
        self._waiting: dict[str, Waiting] = {}

    def play(self, event: str) -> list[str]:
        """The lines to write after the event."""
        name, *arguments = event.split()
        lines = list(getattr(self, f"_{name}")(*arguments))
        return [*lines, *self._answers(), self._state()]

    @property
    def _held(self) -> Partition:
        return self.rig.manager.partition(TP)

    def _lead(self, epoch: str, _isr: str, ids: str) -> Iterator[str]:
        self._partition_epoch += 1
        members = tuple(map(int, ids.split(",")))
        self._push(1, int(epoch), members)
        yield from ()

    def _follow(self, leader: str, epoch: str) -> Iterator[str]:
        self._partition_epoch += 1
        self._push(int(leader), int(epoch), REPLICAS)
        yield from ()

    def _push(self, leader: int, epoch: int, isr: tuple[int, ...]) -> None:
        pushed = state(leader, REPLICAS, isr, leader_epoch=epoch, partition_epoch=self._partition_epoch)
        self.rig.push({"t": [pushed]})

    def _produce(self, *values: str) -> Iterator[str]:
        answer = self.rig.answer(produce(batch(*map(str.encode, values)), acks=-1, timeout_ms=60_000), PRODUCE_VERSION)
        if isinstance(answer, Waiting):
            self._waiting[" ".join(values)] = answer
        else:
            yield f"producer of {' '.join(values)} gets {produced(answer)}"

    def _fetch(self, follower: str, offset: str) -> Iterator[str]:
        request = fetch(int(offset), item={"log_start_offset": 0})
        request.replica_state.replica_id = int(follower)
        request.replica_state.replica_epoch = 7
        before = len(self.rig.isr_changes.submitted)
        data = self.rig.answer(request, FETCH_VERSION).responses[0].partitions[0]
        if data.error_code:
            yield f"{follower} gets {ErrorCode(data.error_code).name}"
        else:
            yield f"{follower} gets {data.records.size if data.records else 0} bytes, HW {data.high_watermark}"
        yield from self._proposals(before)

    def _wait(self, ms: str) -> Iterator[str]:
        before = len(self.rig.isr_changes.submitted)
        self.rig.advance_ms(int(ms))
        self.rig.manager.maybe_shrink_isrs()
        yield from self._proposals(before)

    def _accepted(self) -> Iterator[str]:
        self._partition_epoch += 1
        _, proposal, on_done = self.rig.isr_changes.submitted.pop(0)
        isr = self._accepted_isr = tuple(broker for broker, _ in proposal.isr)
        on_done(IsrOutcome(ErrorCode.NONE, 1, proposal.leader_epoch, isr, self._partition_epoch))
        yield from ()

    def _pushed(self) -> Iterator[str]:
        self._push(1, self._held.leader_epoch, self._accepted_isr)
        yield from ()

    def _refused(self, error: str) -> Iterator[str]:
        _, _, on_done = self.rig.isr_changes.submitted.pop(0)
        on_done(IsrOutcome(ErrorCode[error]))
        yield from ()

    def _copy(self, epoch: str, *rest: str) -> Iterator[str]:
        *values, _hw, high_watermark = rest
        log = self._held.log
        assert log is not None
        records = batch(*map(str.encode, values), base_offset=log.log_end_offset, leader_epoch=int(epoch))
        self._held.append_as_follower(memoryview(bytearray(records)), leader_epoch=self._held.leader_epoch)
        self._held.update_follower_watermarks(int(high_watermark), 0)
        yield from ()

    def _diverges(self, epoch: str, end: str) -> Iterator[str]:
        log = self._held.log
        assert log is not None
        leader = EpochEnd(int(epoch), int(end))
        own = EpochEnd(*log.end_offset_for_epoch(leader.leader_epoch))
        offset = truncation_offset(
            leader, own=own, log_end_offset=log.log_end_offset, high_watermark=log.high_watermark
        )
        self._held.truncate_to(offset, leader_epoch=self._held.leader_epoch)
        yield f"truncated to {offset}"

    def _proposals(self, before: int) -> Iterator[str]:
        for _, proposal, _ in self.rig.isr_changes.submitted[before:]:
            yield f"to the controller: ISR {','.join(str(broker) for broker, _ in proposal.isr)}"

    def _answers(self) -> Iterator[str]:
        for values, waiting in list(self._waiting.items()):
            if waiting.response is not None:
                del self._waiting[values]
                yield f"producer of {values} gets {produced(waiting.response)}"

    def _state(self) -> str:
        held, role = self._held, self._held.role
        log = held.log
        assert log is not None
        parts = [f"epoch {role.leader_epoch}", f"LEO {log.log_end_offset}", f"HW {held.high_watermark}"]
        if role.is_leader:
            ends = " ".join(
                f"{f.broker_id}:{'?' if f.log_end_offset < 0 else f.log_end_offset}" for f in held.followers
            )
            parts += [f"others {ends}", f"ISR {joined(role.isr)}"]
            if role.maximal_isr != role.isr:
                parts.append(f"maximal {joined(role.maximal_isr)}")
        else:
            parts.append(f"follows {role.leader_id}")
        if self._waiting:
            parts.append(f"unanswered: {', '.join(self._waiting)}")
        return "   ".join(parts)


def joined(ids: frozenset[int]) -> str:
    return ",".join(map(str, sorted(ids)))


def produced(response: object) -> str:
    answer = response.responses[0].partition_responses[0]  # type: ignore[attr-defined]
    return f"offset {answer.base_offset}" if answer.error_code == 0 else ErrorCode(answer.error_code).name


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.rig.close()


def test_the_transcript_is_what_happens(stage: Stage) -> None:
    written = TRANSCRIPT.read_text()
    lines: list[str] = []
    for line in written.splitlines():
        if line.startswith("    "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"    {shown}" for shown in stage.play(line)]
    happened = "\n".join(lines) + "\n"
    if "WRITE_TRANSCRIPTS" in os.environ:
        TRANSCRIPT.write_text(happened)
    assert happened == written
