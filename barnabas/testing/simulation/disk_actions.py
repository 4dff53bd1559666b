"""Faults of the disks of simulated nodes: full, failing, slow, replaced by an empty one, emptied files.

What may be lost
1. A full, failing or slow disk loses nothing that was acknowledged. As in Kafka, a log directory goes offline at its
   first error, and the process ends with its last directory. It starts again when the disk is repaired.
2. A replaced disk and emptied files lose what no other broker has. So they come only in a calm: no other fault lasts
   and every replica is in sync. A controller that is alone has no copy of its log; one of several gets an empty disk
   while the others have everything that is committed. No files of a controller are emptied: it would refuse to start.
3. `meta.properties` is not emptied: the directory would be refused until a person repairs it
   (docs/internals/storage.md).
4. Of a log, only the last segment is emptied. A hole before it would be below the recovery point, where neither Kafka
   nor Barnabas looks for one.

Threads: the driver's task, and timers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from barnabas.testing.simulation.machine.disk import SimulatedDisk
from barnabas.testing.simulation.machine.disk_faults import FLUSH, READ, WRITE, Failing

if TYPE_CHECKING:
    import random

    from barnabas.testing.simulation.nodes import SimulatedNode

LEFT_BYTES_MAX: Final = 8_192
SLOW_FLUSH_S: Final = (0.3, 3.0, 10.0)
FAILING: Final = ((READ,), (WRITE,), (FLUSH,), (READ, WRITE, FLUSH))
CHANCES: Final = (0.02, 0.3, 1.0)
EMPTIED_MAX: Final = 3
SEGMENT: Final = ".log"
NOT_EMPTIED: Final = ("meta.properties", ".lock")


def fill(node: SimulatedNode, rng: random.Random) -> str:
    """Leave a disk nearly no space; return that in words."""
    left_bytes = rng.randrange(LEFT_BYTES_MAX)
    node.disk.faults.fill(left_bytes)
    return f"the disk of {node.name} is full but for {left_bytes} bytes"


def fail(node: SimulatedNode, rng: random.Random) -> str:
    """Let operations of a disk, or of one of its log directories, fail; return that in words."""
    prefix, operations, chance = rng.choice(node.directories()), rng.choice(FAILING), rng.choice(CHANCES)
    node.disk.faults.fail(Failing(prefix, frozenset(operations), chance))
    return f"{round(chance * 100)} % of each {' and '.join(operations)} in {prefix} of {node.name} fails"


def slow_down(node: SimulatedNode, rng: random.Random) -> str:
    """Let flushes of a disk take seconds; return that in words."""
    seconds = rng.choice(SLOW_FLUSH_S)
    node.disk.faults.slow_down(int(seconds * 1e9))
    return f"a flush of {node.name} takes up to {seconds} s"


def replace(node: SimulatedNode) -> str:
    """Kill a node, and give it an empty disk; return that in words."""
    node.kill()
    node.disk = SimulatedDisk()
    node.disks += 1
    return f"{node.name} is killed, and gets an empty disk"


def empty_files(node: SimulatedNode, rng: random.Random) -> str:
    """Kill a node, and truncate some of its files to zero; return that in words."""
    node.kill()
    paths = sorted(node.disk.files())
    last = {os.path.dirname(path): path for path in paths if path.endswith(SEGMENT)}  # the last one stays
    kept = {path for path in paths if path.endswith(SEGMENT)} - set(last.values())
    candidates = [path for path in paths if path not in kept and not path.endswith(NOT_EMPTIED)]
    chosen = rng.sample(candidates, min(len(candidates), 1 + rng.randrange(EMPTIED_MAX)))
    node.disk.empty(chosen)
    return f"{node.name} is killed, and finds these files empty: {', '.join(chosen)}"
