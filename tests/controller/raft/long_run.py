"""Many worlds, one after another or on several cores, in the order of their seeds.

What is done is kept in a file, so that a run of hours can be stopped and goes on later. It counts for the code that it
was done with: the file is named after the seed and a digest of the sources. A digest of all histories goes with it; it
is the same for compiled and uncompiled code, and for any number of jobs and stops.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tests.controller.raft.compiled import sources
from tests.controller.raft.simulator.world import World, live

STEPS_OF_A_WORLD = 20_000
SAVE_EVERY = 50  # worlds
SAY_EVERY = 10_000_000  # steps


class Lived(NamedTuple):
    """One world: what happened in it, and the rule that it broke."""

    seed: int
    steps: int
    now_us: int
    counts: dict[str, int]
    broken: str


@dataclass
class Progress:
    """What is done."""

    seed: int
    worlds: int = 0
    steps: int = 0
    digest: str = ""
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, lived: Lived) -> None:
        self.worlds += 1
        self.steps += lived.steps
        row = (lived.seed, lived.steps, lived.now_us, sorted(lived.counts.items()))
        self.digest = hashlib.sha256(f"{self.digest}{row}".encode()).hexdigest()[:16]
        for name, count in lived.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def report(self) -> str:
        found = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        last = self.seed + self.worlds - 1
        return (
            f"{self.steps} steps in {self.worlds} worlds (seeds {self.seed} to {last}) without a violation, digest "
            f"{self.digest}: {found}"
        )


def counts_of(world: World) -> dict[str, int]:
    """What happened in a world."""
    counts = Counter(world.counts)
    counts["election"] = world.invariants.elections
    counts["committed record"] = world.invariants.committed_end
    counts["voter change"] = world.invariants.voter_changes
    return dict(counts)


def lived(seed: int) -> Lived:
    """Live one world."""
    try:
        world = live(seed, STEPS_OF_A_WORLD)
    except Exception as error:  # Why all: an offset that no log has is a mistake, too
        return Lived(seed, 0, 0, {}, f"{type(error).__name__}: {error}, world {seed}")
    return Lived(seed, world.steps, world.now_us, counts_of(world), "")


def kept_in(directory: Path, seed: int) -> Path:
    """The file of what was done with this seed and this code."""
    code = hashlib.sha256(b"".join(Path(source).read_bytes() for source in sources())).hexdigest()[:12]
    return directory / f"raft-{seed}-{code}.json"


def load(file: Path, seed: int) -> Progress:
    """What a former run has done."""
    return Progress(**json.loads(file.read_text())) if file.exists() else Progress(seed)


def save(file: Path, progress: Progress) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps(asdict(progress), indent=1))
    new.replace(file)


def run(progress: Progress, steps: int, jobs: int, file: Path | None, say: Callable[[str], None]) -> bool:
    """Go on until so many steps are done; return False for a broken rule, after it was said."""
    if progress.worlds:
        say(f"goes on after {progress.steps} steps")
    said = progress.steps // SAY_EVERY
    for found in _lives(progress.seed + progress.worlds, -(-(steps - progress.steps) // STEPS_OF_A_WORLD), jobs):
        if found.broken:
            say(f"FAILED: {found.broken}")
            return False
        progress.add(found)
        if file is not None and progress.worlds % SAVE_EVERY == 0:
            save(file, progress)
        if progress.steps // SAY_EVERY > said:
            said = progress.steps // SAY_EVERY
            say(f"{progress.steps} steps, digest {progress.digest}")
    if file is not None:
        save(file, progress)
    say(progress.report())
    return True


def _lives(first: int, count: int, jobs: int) -> Iterator[Lived]:
    """Live the worlds in the order of their seeds; each takes at least its steps, so that `count` is enough."""
    seeds = range(first, first + count)
    if jobs == 1:  # in this process, which can then be paused by a signal
        yield from map(lived, seeds)
        return
    # Why the signal: the pool ends its workers by it, and a forked one has the handler of this process.
    ending = (signal.SIGTERM, signal.SIG_DFL)
    with get_context("fork").Pool(jobs or os.cpu_count(), signal.signal, ending) as pool:
        yield from pool.imap(lived, seeds, chunksize=4)
