"""Share partitions over failures of leaders and coordinators: no record is accepted twice, none is skipped.

The real parts together, without threads: share partitions on two brokers, each with its persister, and the shard of the
coordinator with its log. Requests and responses are lost, coordinators move and lose what is not committed, leaders
move while the former one goes on for a while, locks run out. Members accept, release, reject or forget what they got.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.coordinators.persister.persister import GIVE_UP_MS
from barnabas.broker.coordinators.share_state.values import NO_START_OFFSET
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.share.led_partition import LedSharePartition, Outcome, Parts
from barnabas.broker.share.partition.values import Acknowledgement, Acquired, AcquireMode, Fetcher, Limits, Span
from barnabas.broker.share.sensors import ShareSensors
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.persister.persister_rig import KEYS, PersisterRig

KEY, TP = KEYS[0], TopicPartition("t", 0)
RECORDS: Final = 24
LIMITS = Limits(lock_duration_ms=1000)
ACCEPT, RELEASE, REJECT = 1, 2, 3
TICK_MS = 50
MEMBERS = ("m", "n", "o")


class World:
    """The leaders of one share partition, the last of which is the present one, and what members heard."""

    def __init__(self) -> None:
        first = PersisterRig(0)
        self.rigs = [first, PersisterRig(0, beside=first)]
        self.purgatories = [Purgatory("ShareFetch", first.clock) for _ in self.rigs]
        sensors = ShareSensors(Registry(first.clock))
        self.own = sensors.of_partition(sensors.of_group())
        group: Any = SimpleNamespace(of=lambda _group: SimpleNamespace(limits=LIMITS))
        wakes: Any = SimpleNamespace(wake=lambda _keys: None)
        self.parts = [
            Parts(rig.persister, group, purgatory.timer, wakes, sensors)
            for rig, purgatory in zip(self.rigs, self.purgatories, strict=True)
        ]
        self.leaders: list[LedSharePartition] = []
        self.held: list[tuple[LedSharePartition, str, Acquired]] = []
        self.delivered: Counter[int] = Counter()
        self.accepted: Counter[int] = Counter()
        self.ended: set[int] = set()  # rejected, or acknowledged with an unknown end
        self.is_calm = True  # every write has been carried out once, or refused
        first.persister.initialize(KEY, 1, NO_START_OFFSET, lambda _error: None)
        self.run()
        self.lead(0)
        self.run()

    def run(self, ms: int = 0) -> None:
        """Let everybody do what they have to, for so long."""
        for step in range(0, ms + TICK_MS, TICK_MS):
            if step:
                self.rigs[0].clock.advance_ms(TICK_MS)
            for purgatory, rig in zip(self.purgatories, self.rigs, strict=True):
                purgatory.advance()
                rig.run()

    def lead(self, broker: int) -> None:
        """The topic partition has a new leader; the former one does not know yet."""
        epoch = len(self.leaders) + 1
        led = LedSharePartition(KEY, TP, epoch, self.parts[broker], self.own, lambda: 0, lambda _led: None)
        self.leaders.append(led)
        led.load()

    def move_coordinator(self, leader: int, *, is_known: bool) -> None:
        """Another broker coordinates; what is not committed is lost."""
        self.rigs[0].state.move()
        for rig in self.rigs:
            rig.leader = leader
            if is_known:
                rig.know(leader)

    def hold(self, *, is_held: bool) -> None:
        """Let the coordinator's records wait to be committed, or commit them."""
        manager = self.rigs[0].state.manager
        manager.holds = is_held
        if not is_held:
            manager.release()

    def fetch(self, led: LedSharePartition, member: str, count: int) -> None:
        fetch = object()
        offset = led.begin_fetch(fetch)
        if offset is None:
            return
        spans = [Span(each, each) for each in range(offset, min(offset + count, RECORDS))]
        mode = AcquireMode.RECORD_LIMIT
        for acquired in led.acquire(Fetcher(member, count, 500, mode), offset, spans, []) if spans else ():
            self.held.append((led, member, acquired))
            self.delivered.update(range(acquired.first, acquired.last + 1))
        led.end_fetch(fetch)

    def acknowledge(self, which: int, type_: int) -> None:
        """A member acknowledges what it holds, perhaps too late.

        Before the start offset that has no effect, and is answered with NONE: a member that held a record twice, since
        its lock ran out in between, may accept both.
        """
        led, member, acquired = self.held.pop(which % len(self.held))
        start_offset, _ = led.offsets
        offsets = range(max(start_offset, acquired.first), acquired.last + 1)

        def heard(outcome: Outcome) -> None:
            is_fenced = outcome.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
            if outcome.error == ErrorCode.INVALID_RECORD_STATE or (is_fenced and self.is_calm):
                return  # without effect; a fenced write may be one that was carried out and repeated
            if outcome.error == ErrorCode.NONE and type_ == ACCEPT:
                self.accepted.update(offsets)
            elif type_ != RELEASE:
                self.ended.update(offsets)

        led.acknowledge(member, [Acknowledgement(acquired.first, acquired.last, [type_])], heard)

    def drain(self) -> None:
        """Everything works again: a new leader delivers what is left, and a member accepts it."""
        for rig in self.rigs:
            rig.know(rig.leader)
            rig.loses.clear()
        self.hold(is_held=False)
        self.run(2 * GIVE_UP_MS)
        self.lead(0)
        self.run(1000)
        last = self.leaders[-1]
        assert last.error == ErrorCode.NONE
        for _ in range(RECORDS):
            self.held.clear()
            self.fetch(last, "last", RECORDS)
            while self.held:
                self.acknowledge(0, ACCEPT)
            self.run(LIMITS.lock_duration_ms + TICK_MS)
        assert last.offsets == (RECORDS, RECORDS), "nothing gets stuck"


STEPS = (
    ("fetch",) * 5 + ("acknowledge",) * 5 + ("run",) * 3 + ("lose", "coordinator", "leader", "hold", "commit", "fence")
)


def go(world: World, step: str, data: st.DataObject) -> None:
    """Do a step; hypothesis draws what is open."""
    if step == "run":
        world.run(data.draw(st.sampled_from((0, 0, 100, 600, 1500))))
    elif step == "leader":
        world.lead(data.draw(st.integers(0, 1)))
    elif step == "fence":
        for former in world.leaders[:-1]:
            former.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    else:
        world.is_calm = False
        if step == "lose":
            lost = data.draw(st.sampled_from(("request", "response")))
            data.draw(st.sampled_from(world.rigs)).loses.append(lost)
        elif step == "coordinator":
            world.move_coordinator(data.draw(st.integers(0, 2)), is_known=data.draw(st.booleans()))
        else:
            world.hold(is_held=step == "hold")


def test_of_two_accepts_of_a_record_that_was_held_twice_one_has_effect() -> None:
    world = World()
    (led,) = world.leaders
    for _ in range(2):
        world.fetch(led, "m", 1)
        world.run(LIMITS.lock_duration_ms + TICK_MS)
        assert led.offsets == (0, 0)
    world.fetch(led, "m", 1)
    assert world.delivered == {0: 3}
    for _ in range(3):
        world.acknowledge(0, ACCEPT)
        world.run()
    assert world.held == []
    assert world.accepted == {0: 1}


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_each_record_is_accepted_once_or_archived_and_none_is_skipped(data: st.DataObject) -> None:
    world = World()
    for _ in range(data.draw(st.integers(1, 40))):
        step = data.draw(st.sampled_from(STEPS))
        if step == "fetch":
            led = data.draw(st.sampled_from(world.leaders[-2:]))  # the former one goes on until it is fenced
            world.fetch(led, data.draw(st.sampled_from(MEMBERS)), data.draw(st.integers(1, 8)))
        elif step != "acknowledge":
            go(world, step, data)
        elif world.held:
            type_ = data.draw(st.sampled_from((ACCEPT, ACCEPT, RELEASE, REJECT)))
            world.acknowledge(data.draw(st.integers(0, 20)), type_)
    world.drain()
    assert [offset for offset, times in world.accepted.items() if times > 1] == []
    left = set(range(RECORDS)) - set(world.accepted) - world.ended
    assert [offset for offset in left if world.delivered[offset] < LIMITS.delivery_count] == []
