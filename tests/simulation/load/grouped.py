"""The part of a load in groups: members of a classic group, and of a consumer group, which read the numbered records.

Once nothing breaks, every member must own what it is to own, and each group must read to the end.

Threads: the driver's task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.runtime.partitioning import partition_for
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.testing.simulation.nodes import DEFAULTS
from tests.simulation.checks.groups import GroupJournal
from tests.simulation.load.clients.classic_member import ClassicMember
from tests.simulation.load.clients.client import GROUP, Client
from tests.simulation.load.clients.consumer_member import ConsumerMember
from tests.simulation.load.clients.fetching import UNKNOWN, Fetcher
from tests.simulation.load.numbered import NUMBERED
from tests.simulation.load.part import Part, Setting, problems_of

if TYPE_CHECKING:
    from tests.simulation.load.clients.member import Member


class Asker(Fetcher):
    """Asks for the committed offsets of a group, one after the other, as a tool does that watches its lag."""

    def __init__(self, group: str, partitions: int, setting: Setting, journal: GroupJournal) -> None:
        super().__init__(f"watcher of {group}", setting.bootstrap)
        self._group = group
        self._partitions = partitions
        self._setting = setting
        self._journal = journal

    def run(self) -> None:
        """Ask until it is asked to stop."""
        while not self.is_stopping:
            partition = self._setting.draw(self._partitions)
            asked = self._journal.asking()
            answer = self.ask_for_offset(self._group, NUMBERED, partition)
            if answer is not None:
                found = answer.topics[0].partitions[0] if answer.topics else None
                error = answer.error_code if found is None else found.error_code
                if not self.may_pass(error, f"OffsetFetch of {self._group}") and found is not None:
                    by = self.coordinator(GROUP, self._group)
                    self._journal.fetched(self.name, asked, {partition: found.committed_offset}, by)
            self.wait(self._setting.pause_s)
        self.close()


class Grouped(Part):
    """See the module."""

    def __init__(self, setting: Setting, content: list[dict[int, object]], *, is_classic: bool) -> None:
        super().__init__()
        story = setting.story
        self._setting = setting
        self._content = content  # of the topic, filled in the end
        self.group = "classic" if is_classic else "consumer"
        partition = partition_for(self.group, int(DEFAULTS["offsets.topic.num.partitions"]))
        self.journal = GroupJournal(self.group, partial(setting.seat, TopicPartition(GROUP_METADATA_TOPIC, partition)))
        self._committed: dict[int, int] = {}
        self._members: list[Member] = []
        for number in range(story.classic if is_classic else story.consumers):
            name = f"{self.group}-{number}"
            given = (
                name, setting.bootstrap, self.group, NUMBERED, self.journal, setting.draw, setting.pause_s,
            )  # fmt: skip
            self._members.append(
                ClassicMember(*given) if is_classic else ConsumerMember(*given, member_id=name, era=self._era)
            )
        for member in self._members:
            member.is_undisturbed = not story.faults
        self.clients = [*self._members]
        if self._members:
            self.clients.append(Asker(self.group, story.partitions, setting, self.journal))

    def _era(self) -> tuple[int, ...] | None:
        """Return what changes when a coordinator is elected; None while nobody knows."""
        partitions = range(int(DEFAULTS["offsets.topic.num.partitions"]))
        epochs = tuple(self._setting.era(TopicPartition(GROUP_METADATA_TOPIC, each))[1] for each in partitions)
        return None if UNKNOWN in epochs else epochs

    def is_settled(self) -> bool:
        """See Part: each partition has an owner, and all members that own something have one generation."""
        owned = sorted(partition for member in self._members for partition in member.positions)
        epochs = {member.epoch for member in self._members}
        return owned == list(range(self._setting.story.partitions)) and len(epochs) == 1

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        asker = Fetcher(f"asker of {self.group}", self._setting.bootstrap)
        yield asker, partial(self._ask, asker)

    def _ask(self, asker: Fetcher) -> None:
        for partition in range(self._setting.story.partitions):
            asked = self.journal.asking()
            offset = asker.committed_offset(self.group, NUMBERED, partition)
            self.journal.fetched("the last asker", asked, {partition: offset}, asker.coordinator(GROUP, self.group))
            self._committed[partition] = offset
        asker.close()

    def check(self) -> Iterable[str]:
        """See Part."""
        yield from problems_of(self.clients)
        yield from self.journal.check(dict(enumerate(map(list, self._content))), self._committed)

    def summary(self) -> str:
        """See Part."""
        return f"group {self.group}: {self.journal.claims} times owned, {self.journal.commits} commits"
