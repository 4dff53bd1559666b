"""Elections: leaders, epochs and ISRs after a change of a partition."""

from __future__ import annotations

import pytest

from barnabas.common.ids import random_uuid
from barnabas.controller.decisions.elections import Election, Target, elect, next_partition
from barnabas.controller.image import NO_LEADER, NO_LEADER_CHANGE, RECOVERED, RECOVERING, Partition, PartitionKey

KEY = PartitionKey(random_uuid(), 0)


def partition(replicas: str = "123", isr: str = "123", leader: int = 1, **more: object) -> Partition:
    return Partition(digits(replicas), digits(isr), leader, 5, 7, **more)  # type: ignore[arg-type]


def digits(text: str) -> tuple[int, ...]:
    return tuple(int(c) for c in text)


@pytest.mark.parametrize(
    ("election", "leader", "isr", "alive", "expected"),
    [
        (Election.ONLINE, 1, "123", "123", (1, False)),
        (Election.ONLINE, 2, "123", "123", (2, False)),  # the current leader stays while it can
        (Election.ONLINE, 1, "123", "23", (2, False)),  # else the first of the assignment
        (Election.ONLINE, 1, "13", "23", (3, False)),  # that is in the ISR
        (Election.ONLINE, 1, "1", "23", (NO_LEADER, False)),
        (Election.PREFERRED, 2, "123", "123", (1, False)),
        (Election.PREFERRED, 2, "23", "123", (2, False)),  # not in the ISR: the leader stays
        (Election.PREFERRED, 2, "123", "3", (3, False)),
        (Election.UNCLEAN, 1, "1", "23", (2, True)),
        (Election.UNCLEAN, 1, "13", "23", (3, False)),  # a clean one is better
        (Election.UNCLEAN, 1, "1", "", (NO_LEADER, False)),
    ],
)
def test_the_elected_leader(election: Election, leader: int, isr: str, alive: str, expected: tuple[int, bool]) -> None:
    p = partition(isr=isr, leader=leader)
    assert elect(p, p.isr, p.replicas, election, digits(alive).__contains__) == expected


def test_nothing_to_change_is_no_record() -> None:
    p = partition()
    assert next_partition(KEY, p, Target(), digits("123").__contains__) is None


def test_a_new_leader_starts_an_epoch() -> None:
    record = next_partition(KEY, partition(), Target(isr=(2, 3)), digits("23").__contains__)
    assert record is not None
    after = partition().merge(record)
    assert (after.leader, after.leader_epoch, after.partition_epoch, after.isr) == (2, 6, 8, (2, 3))


def test_an_isr_change_alone_starts_no_epoch() -> None:
    record = next_partition(KEY, partition(), Target(isr=(1, 2)), digits("12").__contains__)
    assert record is not None
    assert record.leader == NO_LEADER_CHANGE
    after = partition().merge(record)
    assert (after.leader_epoch, after.partition_epoch, after.isr) == (5, 8, (1, 2))


def test_the_last_member_stays_in_the_isr_of_a_leaderless_partition() -> None:
    p = partition(isr="1")
    record = next_partition(KEY, p, Target(isr=()), digits("23").__contains__)
    assert record is not None
    assert record.isr is None
    after = p.merge(record)
    assert (after.leader, after.isr) == (NO_LEADER, (1,))


def test_an_unclean_election_leaves_only_its_winner_and_marks_it() -> None:
    p = partition(isr="1")
    record = next_partition(KEY, p, Target(isr=(), election=Election.UNCLEAN), digits("23").__contains__)
    assert record is not None
    after = p.merge(record)
    assert (after.leader, after.isr, after.recovery_state) == (2, (2,), RECOVERING)
    record = next_partition(KEY, after, Target(recovery_state=RECOVERED), digits("23").__contains__)
    assert record is not None
    assert after.merge(record).recovery_state == RECOVERED


def test_a_reassignment_completes_when_all_that_stay_are_in_sync() -> None:
    p = partition("4123", "123", 1, adding=(4,), removing=(1,))
    waiting = next_partition(KEY, p, Target(isr=(1, 2)), digits("1234").__contains__)
    assert waiting is not None
    assert waiting.removing_replicas is None
    done = next_partition(KEY, p, Target(isr=(1, 2, 3, 4)), digits("1234").__contains__)
    assert done is not None
    after = p.merge(done)
    assert after.replicas == (4, 2, 3)
    assert after.isr == (2, 3, 4)
    assert (after.adding, after.removing) == ((), ())
    assert after.leader == 4
    assert after.leader_epoch == 6


def test_removing_a_replica_bumps_the_leader_epoch_even_if_the_leader_stays() -> None:
    p = partition("123", "123", 1, removing=(3,))
    record = next_partition(KEY, p, Target(isr=(1, 2)), digits("123").__contains__)
    assert record is not None
    after = p.merge(record)
    assert (after.leader, after.leader_epoch, after.replicas) == (1, 6, (1, 2))
