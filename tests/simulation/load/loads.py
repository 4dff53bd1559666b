"""The load of a life: the parts that a story names, with all their topics and clients.

Threads: the driver's task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.simulation.load import foreign
from tests.simulation.load.clients.admin import Meddler
from tests.simulation.load.clients.readers import Reader
from tests.simulation.load.decided import Decided
from tests.simulation.load.grouped import Grouped
from tests.simulation.load.numbered import Loose, Numbered
from tests.simulation.load.part import Part, Setting, Topic, readers_of
from tests.simulation.load.removed import TRIMMED, Compacted, Trimmed
from tests.simulation.load.renewed import Renewed
from tests.simulation.load.shared import Shared
from tests.simulation.load.transacted import Copied, Transacted
from tests.simulation.load.voters import Voters

MEDDLER_PAUSE_S = 3.0


class Load:
    """See the module."""

    def __init__(self, setting: Setting) -> None:
        story = setting.story
        numbered = Numbered(setting)
        content: list[Any] = numbered.content
        self.numbered = numbered
        meddlers: list[Meddler] = []
        kinds: list[tuple[int, Callable[[], Part]]] = [
            (story.plain or story.silent, lambda: Loose(setting)),
            (story.transactional, lambda: Transacted(setting)),
            (story.copiers, lambda: Copied(setting, content)),
            (story.classic, lambda: Grouped(setting, content, is_classic=True)),
            (story.consumers, lambda: Grouped(setting, content, is_classic=False)),
            (story.sharers, lambda: Shared(setting, content)),
            (story.keyed, lambda: Compacted(setting)),
            (story.trimmed, lambda: Trimmed(setting, meddlers)),
            (story.deciders, lambda: Decided(setting)),
            (story.voters, lambda: Voters(setting)),
            (story.renewers, lambda: Renewed(setting)),
            (story.kafka_python, lambda: foreign.kafka_python(setting)),
            (story.aiokafka, lambda: foreign.aiokafka(setting)),
        ]
        self.parts: list[Part] = [numbered, *(make() for count, make in kinds if count)]
        topics = {topic.name: topic.partitions for topic in self.topics}
        # Why extended: a part above has the list already, and asks the meddlers in the end.
        meddlers.extend(
            Meddler(
                f"meddler-{number}", setting.bootstrap, setting.draw, MEDDLER_PAUSE_S, story.brokers, topics,
                {TRIMMED} & topics.keys(),
            )
            for number in range(story.meddlers)
        )  # fmt: skip
        self.meddlers = meddlers

    @property
    def topics(self) -> list[Topic]:
        """The topics that must be there before the clients start."""
        return [topic for part in self.parts for topic in part.topics]

    @property
    def clients(self) -> list[Any]:
        """The clients that work until they are asked to stop."""
        return [*self.meddlers, *(client for part in self.parts for client in part.clients)]

    def readers(self) -> list[Reader]:
        """The readers that note which high watermark they were told."""
        return [reader for part in self.parts for reader in readers_of(part)]

    def check(self) -> list[str]:
        """Return what is wrong in the end."""
        problems = [problem for part in self.parts for problem in part.check()]
        given = Counter(each for client in self.clients for each in client.producer_ids)
        return problems + [f"two owners: producer id {each} of {count}" for each, count in given.items() if count > 1]

    def unsettled(self) -> list[str]:
        """Return the parts that have not reached what they must reach once nothing breaks."""
        return [type(part).__name__ for part in self.parts if not part.is_settled()]

    def summary(self) -> list[str]:
        """Return in words how much was done."""
        return [*filter(None, (part.summary() for part in self.parts))]
