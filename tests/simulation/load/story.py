"""A story: which clients take part in a life of a cluster, and what they are like.

The seed draws it (`Story.drawn`), so that every life is another one. `--story` gives parts of it, or all: the text of a
story (`str`) is what that option takes, so a failing life can be told, repeated and made smaller.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass


class StoryError(Exception):
    """The text of a story is wrong; the message is one line."""


@dataclass(frozen=True, slots=True)
class Story:
    """What happens in a run. A count of 0 leaves a kind of client out."""

    brokers: int = 3
    seconds: int = 60  # of virtual time, from the creation of the topics until all faults end
    faults: int = 1  # 0: nothing breaks
    varied: int = 1  # 0: default settings, and the usual pace of faults
    partitions: int = 2  # of each topic with more than one
    producers: int = 2  # idempotent, acks=all
    pipelining: int = 0  # idempotent producers with several requests on their way
    readers: int = 1
    plain: int = 0  # producers with acks=1
    silent: int = 0  # producers with acks=0
    transactional: int = 0  # producers that write and read in transactions
    copiers: int = 0  # consume, transform, produce
    classic: int = 0  # members of a classic group
    consumers: int = 0  # members of a consumer group (KIP-848)
    keyed: int = 0  # producers to a compacted topic
    trimmed: int = 0  # producers to a topic with a short retention
    meddlers: int = 0  # admins that create, delete, configure, elect, reassign
    pause_ms: int = 200  # of a client between two requests or so
    controllers: int = 1
    deciders: int = 0  # admins that note what the controllers acknowledged
    sharers: int = 0  # members of a share group (KIP-932)
    kafka_python: int = 0  # members of a group by kafka-python, beside a producer and a reader by it
    aiokafka: int = 0  # members of a group by aiokafka, beside a producer by it
    # Not drawn, but given by `--story`: what the seed draws now and then, always; or never.
    renewers: int = 0  # admins that delete topics and make them anew
    voters: int = 0  # 1: the voters among several controllers change; needs controllers=3
    haste: int = 0  # 1: faults are short, come one after the other, and none is left out
    outages: int = 0  # 1: brokers flush each batch, and often lose power, all at once too; 2: they do not flush
    stranded: int = 0  # 1: brokers are often left alone in ISRs, and end
    relays: int = 0  # 1: two leaders often end one after the other while the next one copies nothing; 2: nothing else
    orphans: int = 0  # 1: brokers often lose the controllers, and nothing else, until others lead; 2: nothing else
    amid: int = 0  # 1: nodes are often killed while a change is on its way; 2: nothing else
    laggards: int = 0  # 1: one broker copies so slowly that it leaves ISRs and comes back
    overtakes: int = 0  # 1: leaders end whose next one knows a low high watermark, and nothing else
    deaf: int = 0  # 1: the controllers do not reach brokers, whose heartbeats arrive, and nothing else happens
    stops: int = 0  # 1: brokers stop in order, and nothing else happens
    stalls: int = 0  # 1: brokers flush each batch to slow disks, and are paused, and nothing else happens
    restless: int = 0  # 1: threads are interrupted nearly everywhere, and often lose the processor for a time

    @classmethod
    def drawn(cls, seed: int, **given: int) -> Story:
        """Return the story of a seed, apart from what is given."""
        rng = random.Random(f"{seed}/cast")

        def some(chance: float, most: int) -> int:
            # Why both numbers each time: what is given must not change what else is drawn.
            takes_part, count = rng.random() < chance, 1 + int(rng.random() * most)
            return count if takes_part else 0

        drawn = cls(
            brokers=rng.choice((3, 3, 3, 4, 5)),
            partitions=1 + int(rng.random() * 3),
            producers=some(0.9, 2),
            readers=some(0.8, 2),
            plain=some(0.25, 1),
            silent=some(0.25, 1),
            transactional=some(0.5, 3),
            copiers=some(0.4, 2),
            classic=some(0.4, 3),
            consumers=some(0.4, 3),
            keyed=some(0.3, 2),
            trimmed=some(0.3, 1),
            meddlers=some(0.4, 1),
            pause_ms=rng.choice((50, 200, 200, 800)),
            pipelining=some(0.4, 1),
            controllers=rng.choice((1, 3)),
            deciders=some(0.5, 1),
            sharers=some(0.3, 3),
            kafka_python=some(0.1, 2),
            aiokafka=some(0.1, 2),
        )
        return dataclasses.replace(drawn, **given)

    @classmethod
    def given(cls, text: str) -> dict[str, int]:
        """Return the parts of a story in a text like `producers=2,copiers=0`. Raises StoryError."""
        names = [each.name for each in dataclasses.fields(cls)]
        parts: dict[str, int] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in names:
                raise StoryError(f"a story has no {name!r}; it has {', '.join(names)}")
            if not value.isdecimal():
                raise StoryError(f"{name} of a story is a number from 0 on, not {value!r}")
            parts[name] = int(value)
        return parts

    def __str__(self) -> str:
        return ",".join(f"{each.name}={getattr(self, each.name)}" for each in dataclasses.fields(self))
