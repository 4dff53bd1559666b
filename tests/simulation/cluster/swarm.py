"""The settings of a cluster, drawn by the seed: each life has others, since faults hide behind some of them.

A setting keeps its default in about half of the lives; those of SHORT never do, since a life has a minute. Swarm
testing (Groce et al., 2012): a mix in which everything takes part always hides what needs the absence of something.

Threads: none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.broker.fetch_sessions import session
from barnabas.testing.simulation.fault_decisions import FLUSHED_KINDS, KINDS, FaultPace
from barnabas.testing.simulation.machine.scheduler import Pace

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from barnabas.testing.simulation.nodes import SimulatedNode
    from tests.simulation.load.story import Story

#: Setting -> values in place of a default that is too long for a short life.
SHORT: Final[Mapping[str, Sequence[str]]] = {
    "broker.heartbeat.interval.ms": ("500", "1000"),
    "broker.session.timeout.ms": ("2500", "4000", "9000"),
    "metadata.log.max.record.bytes.between.snapshots": ("2000", "20000", "20971520"),
    "replica.lag.time.max.ms": ("1000", "2000", "5000", "20000"),
}
#: Setting -> values beside its default.
CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "auto.leader.rebalance.enable": ("false",),
    "fetch.purgatory.purge.interval.requests": ("1",),
    "internal.segment.bytes": ("1000", "5000"),
    "leader.imbalance.check.interval.seconds": ("3", "10"),
    "log.flush.offset.checkpoint.interval.ms": ("500", "5000"),
    "log.index.interval.bytes": ("0", "300"),
    "log.roll.ms": ("700", "5000"),
    "log.segment.delete.delay.ms": ("0", "1000"),
    "num.io.threads": ("1", "2"),
    "num.network.threads": ("1",),
    "num.replica.fetchers": ("2",),
    "producer.purgatory.purge.interval.requests": ("1",),
    "replica.fetch.backoff.ms": ("50",),
    "replica.fetch.max.bytes": ("1", "200"),
    "replica.fetch.wait.max.ms": ("50", "900"),
    "replica.high.watermark.checkpoint.interval.ms": ("300", "60000"),
    "share.coordinator.snapshot.update.records.per.snapshot": ("0", "5"),
    "share.fetch.purgatory.purge.interval.requests": ("1",),
}


FLUSHED: Final = {"log.flush.interval.messages": "1"}
#: What a story's `outages` make frequent.
OUTAGES: Final = frozenset({"lose_power", "lose_all_power"})
#: What its `stranded` makes frequent.
STRANDING: Final = frozenset({"strand", "kill_peers"})
#: What its `relays`, `orphans` and `amid` make frequent, or all that happens.
RELAYS: Final = frozenset({"relay"})
ORPHANS: Final = frozenset({"orphan"})
AMID: Final = frozenset({"kill_amid"})
#: All that happens with its `overtakes`, `deaf`, `stops` and `stalls`.
OVERTAKES: Final = frozenset({"overtake"})
DEAF: Final = frozenset({"deafen"})
STOPS: Final = frozenset({"stop"})
STALLS: Final = frozenset({"slow_disk", "pause"})
#: Of its `overtakes`: a follower gets one batch of a partition at a time.
OVERTAKEN: Final = {"replica.fetch.max.bytes": "1", "replica.lag.time.max.ms": "2000"}
#: Of its `deaf`: brokers are deaf for longer than this.
DEAFENED: Final = {"barnabas.metadata.lag.max.ms": "4000"}
#: Of its `stalls`: one handler sleeps while the other one waits for its disk.
STALLED: Final = {"num.io.threads": "2"}
#: Of a story's `haste`.
HASTY_GAP_MS, HASTY_LENGTH_MS = 1_500, 5_000
#: Of a story's `laggards`: a follower that waits for so long before each fetch may lag for so long.
LAGGING: Final = {"replica.lag.time.max.ms": "1000"}
LAGGARD_MS: Final = "600"
#: Of a story's `restless`.
RESTLESS: Final = Pace(2.0, 0.01, 50_000_000)
#: How long a broker waits after each fetch of a follower.
SLOW_FETCHER: Final = "barnabas.slow.motion.fetcher.ms"


def draw_pace(rng: random.Random) -> FaultPace:
    """Return the faults of one life."""
    left_out = frozenset(kind for kind in KINDS if rng.random() < 0.4)
    return FaultPace(
        gap_ms_max=rng.choice((800, 3_000, 8_000)),
        length_ms_max=rng.choice((1_500, 6_000, 15_000)),
        is_flushed=rng.random() < 0.35,
        left_out=left_out if len(left_out) < len(KINDS) else frozenset(),
        favoured=frozenset({rng.choice(list(KINDS))} if rng.random() < 0.5 else ()) - left_out,
    )


def told_pace(pace: FaultPace, story: Story) -> FaultPace:
    """Return the faults of one life as its story changes them."""
    if story.haste:
        pace = replace(pace, gap_ms_max=HASTY_GAP_MS, length_ms_max=HASTY_LENGTH_MS, left_out=frozenset())
    if story.outages:
        pace = replace(pace, is_flushed=story.outages == 1, left_out=pace.left_out - OUTAGES, favoured=OUTAGES)
    if story.stranded:
        pace = replace(pace, left_out=pace.left_out - STRANDING, favoured=STRANDING)
    for count, kinds in ((story.relays, RELAYS), (story.orphans, ORPHANS), (story.amid, AMID)):
        if count:
            others = pace.left_out - kinds if count == 1 else frozenset(KINDS) - kinds
            pace = replace(pace, left_out=others, favoured=kinds)
    alone = (story.overtakes, OVERTAKES), (story.deaf, DEAF), (story.stops, STOPS), (story.stalls, STALLS)
    for count, kinds in alone:
        if count:
            is_flushed = pace.is_flushed or bool(story.stalls)
            pace = replace(pace, is_flushed=is_flushed, left_out=frozenset(FLUSHED_KINDS) - kinds, favoured=kinds)
    if story.voters:
        pace = replace(pace, left_out=pace.left_out | {"replace_disk"})
    return pace


def draw_slow_fetchers(rng: random.Random, broker_ids: Sequence[int], *, has_laggards: bool = False) -> dict[int, str]:
    """Return broker -> how long it waits before each fetch, for those that copy more slowly than the others."""
    has_none = rng.random() < 0.4
    found = {rng.choice(broker_ids): rng.choice(("20", "150", LAGGARD_MS))}
    if has_laggards:
        return dict.fromkeys(found, LAGGARD_MS)
    return {} if has_none else found


def end_slow_fetcher(broker: SimulatedNode) -> None:
    """Let a broker copy as fast as the others from now on.

    Why: a fetch returns a part of one segment, and a segment may have 1,000 bytes; a follower whose next fetch comes
    later than half of replica.lag.time.max.ms stays behind the high watermark. Both hold in Kafka too. Under load, such
    a follower never joins an ISR.
    """
    broker.properties.pop(SLOW_FETCHER, None)
    config = broker.server.config if broker.is_running and broker.server is not None else None
    if config is not None:
        config.originals.pop(SLOW_FETCHER, None)  # from which each change at run time starts
        config.barnabas_slow_motion_fetcher_ms = 0


def told_settings(settings: dict[str, str], story: Story) -> dict[str, str]:
    """Return the settings of one life as its story changes them."""
    told = (
        (story.laggards, LAGGING),
        (story.overtakes, OVERTAKEN),
        (story.deaf, DEAFENED),
        (story.stalls, STALLED),
    )
    return settings | {key: value for count, each in told for key, value in each.items() if count}


def draw_delay_ns(rng: random.Random) -> int:
    """Return how much longer everything from and to the controller takes: changes are on their way for so long."""
    return rng.choice((0, 0, 0, 20, 150)) * 1_000_000


def draw_idle_from(rng: random.Random) -> int:
    """Return of how many partitions on fetch sessions have idle ones: half of the lives have them in every session."""
    return rng.choice((0, session.IDLE_FROM))


def draw_settings(rng: random.Random) -> dict[str, str]:
    """Return the settings of one life."""
    short = {key: rng.choice(values) for key, values in SHORT.items()}
    return short | {key: rng.choice(values) for key, values in CHOICES.items() if rng.random() < 0.5}
