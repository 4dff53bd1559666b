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


# -- eligible leader replicas (rules 8 and 9)


def changed(p: Partition, target: Target, alive: str, min_isr: int | None = 2) -> Partition:
    record = next_partition(KEY, p, target, digits(alive).__contains__, min_isr=min_isr)
    return p if record is None else p.merge(record)


def without(p: Partition, *replicas: int, **more: object) -> Target:
    return Target(isr=tuple(r for r in p.isr if r not in replicas), **more)  # type: ignore[arg-type]


def shown(p: Partition) -> tuple[int, str, str, str]:
    """(leader, ISR, ELR, last leader)."""
    isr, elr, last = ("".join(map(str, members)) for members in (p.isr, p.elr, p.last_known_elr))
    return p.leader, isr, elr, last


def test_the_story_of_a_partition_that_loses_all_replicas_and_gets_them_back() -> None:
    p = changed(partition(), without(partition(), 3), "12")
    assert shown(p) == (1, "12", "", ""), "the ISR is large enough: the high watermark goes on without 3"
    p = changed(p, without(p, 2), "1")
    assert shown(p) == (1, "1", "2", "")
    p = changed(p, without(p, 1), "")
    assert shown(p) == (NO_LEADER, "", "12", "1")
    assert changed(p, Target(), "3") == p, "3 may lack records"
    p = changed(p, Target(), "23")
    assert shown(p) == (2, "2", "1", "")
    assert p.recovery_state == RECOVERED, "the election was clean"
    p = changed(p, Target(isr=(2, 3)), "23")
    assert shown(p) == (2, "23", "", "")


def test_a_replica_that_may_have_lost_records_leaves_the_elr() -> None:
    p = partition(isr="1", elr=(2,))
    after = changed(p, without(p, without_data=frozenset({2})), "13")
    assert shown(after) == (1, "1", "", "")
    after = changed(p, without(p, 1, without_data=frozenset({1})), "")
    assert shown(after) == (NO_LEADER, "", "2", "1")


@pytest.mark.parametrize("election", list(Election))
def test_the_last_leader_leads_again_if_nothing_better_is_known(election: Election) -> None:
    p = partition(isr="", leader=NO_LEADER, elr=(), last_known_elr=(2,))
    after = changed(p, Target(election=election), "12" if election is not Election.PREFERRED else "2")
    assert shown(after) == (2, "2", "", "")
    assert after.recovery_state == RECOVERING
    waiting = p._replace(elr=(3,))
    assert elect(waiting, (), waiting.replicas, Election.ONLINE, digits("2").__contains__, elr=(3,)) == (
        NO_LEADER,
        False,
    )


def test_an_unclean_election_empties_the_elr() -> None:
    p = partition(isr="", leader=NO_LEADER, elr=(2,), last_known_elr=(1,))
    assert shown(changed(p, Target(election=Election.UNCLEAN), "23")) == (2, "2", "", "")
    after = changed(p, Target(election=Election.UNCLEAN), "3")
    assert (shown(after), after.recovery_state) == ((3, "3", "", ""), RECOVERING)


@pytest.mark.parametrize(
    ("replicas", "min_isr", "expected"),
    [
        ("12", 3, "2"),  # two replicas: the leader counts 2 as the least
        ("1", 2, ""),
        ("123", 1, ""),
    ],
)
def test_the_least_isr_is_at_most_the_number_of_replicas(replicas: str, min_isr: int, expected: str) -> None:
    p = partition(replicas, isr=replicas[:2])
    assert shown(changed(p, without(p, 2), "1", min_isr))[2] == expected


def test_an_election_from_the_elr_that_makes_the_isr_large_enough_empties_it() -> None:
    p = partition(isr="", leader=NO_LEADER, elr=(1, 2))
    assert shown(changed(p, Target(), "2", min_isr=1)) == (2, "2", "", "")


def test_a_replica_that_is_removed_leaves_the_elr() -> None:
    p = partition("123", "13", 1, removing=(2,), elr=(2,))
    after = changed(p, Target(isr=(1, 3)), "13", min_isr=3)
    assert (after.replicas, shown(after)) == ((1, 3), (1, "13", "", ""))


def test_the_only_member_that_leaves_a_leaderless_isr_counts_as_the_last_leader() -> None:
    p = partition(isr="1", leader=NO_LEADER)  # from the time before the feature was enabled
    after = changed(p, without(p, 1, without_data=frozenset({1})), "")
    assert shown(after) == (NO_LEADER, "", "", "1")
    assert shown(changed(after, Target(), "1")) == (1, "1", "", "")


def test_without_the_feature_a_former_elr_lasts_until_there_is_a_leader() -> None:
    p = partition(isr="", leader=NO_LEADER, elr=(1, 2), last_known_elr=(1,))
    assert changed(p, Target(), "3", min_isr=None) == p
    assert shown(changed(p, Target(), "2", min_isr=None)) == (2, "2", "", "")
    led = partition(isr="1", elr=(2,))
    assert shown(changed(led, Target(), "1", min_isr=None)) == (1, "1", "", "")
