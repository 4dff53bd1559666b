"""The part of a load in a share group: its members share the numbered records, and each is accepted by one of them.

Once nothing breaks, every partition must have a member; then a last member gets what is left.

Threads: the driver's task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tests.simulation.checks.shares import ShareJournal
from tests.simulation.load.clients.client import Client
from tests.simulation.load.clients.share_member import ShareMember
from tests.simulation.load.numbered import NUMBERED
from tests.simulation.load.part import Part, Setting, problems_of

#: group.share.delivery.count.limit in these lives: so many that members see most deliveries of a record.
DELIVERIES_MAX: Final = 10


class Shared(Part):
    """See the module."""

    def __init__(self, setting: Setting, content: list[dict[int, object]]) -> None:
        super().__init__()
        self._setting = setting
        self._content = content  # of the topic, filled in the end
        self.journal = ShareJournal(DELIVERIES_MAX)
        self._members = [self._member(f"sharer-{number}", begins=not number) for number in range(setting.story.sharers)]
        self._last = self._member("last sharer", begins=False)
        self.clients = [*self._members]

    def _member(self, name: str, *, begins: bool) -> ShareMember:
        setting = self._setting
        return ShareMember(
            name, setting.bootstrap, NUMBERED, setting.story.partitions, self.journal, setting.draw, setting.pause_s,
            begins=begins,
        )  # fmt: skip

    def is_settled(self) -> bool:
        """See Part: each partition has a member, and all members have one epoch."""
        shared = {partition for member in self._members for partition in member.assigned}
        return shared == set(range(self._setting.story.partitions)) and len({m.epoch for m in self._members}) == 1

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        yield self._last, self._last.run_to_end

    def check(self) -> Iterable[str]:
        """See Part."""
        yield from problems_of([*self.clients, self._last])
        yield from self.journal.check({partition: len(found) for partition, found in enumerate(self._content)})

    def summary(self) -> str:
        """See Part."""
        return f"share group: {self.journal.deliveries} deliveries, {self.journal.settled} records settled"
