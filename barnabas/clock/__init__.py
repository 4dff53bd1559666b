"""The clock in the hand: move the time of a running cluster forward, for tests. See docs/clock.md.

    from barnabas.clock import ClusterClock

    clock = ClusterClock(cluster)        # a LocalCluster, or its directory; the plugin's cluster has it as `.clock`
    clock.advance("7d")                  # what expires in 7 days has expired when the call returns
    clock.now(), clock.offset_ms()

The cluster's processes must run with barnabas.clock.enable=true, e.g. LocalCluster(config={…}).
"""

from __future__ import annotations

from barnabas.clock.cluster_clock import ClusterClock
from barnabas.clock.errors import ClockError

__all__ = ["ClockError", "ClusterClock"]
