"""All drills, by name."""

from __future__ import annotations

from barnabas.drills import groups, load, quorum, servers
from barnabas.drills.drill import Drill

DRILLS: dict[str, Drill] = {
    drill.name: drill for drill in (*servers.DRILLS, *quorum.DRILLS, *load.DRILLS, *groups.DRILLS)
}
