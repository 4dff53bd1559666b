"""Fault injection for tests: the definition of a fault, and adding it to a running cluster. See docs/faults.md.

    from barnabas.faults import Fault, Faults

    faults = Faults(cluster)     # a LocalCluster, its directory, or "host:port,…" of its metrics pages
    handle = faults.add(Fault(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2))
    handle.fired, handle.calls, handle.events, handle.wait_fired(2), handle.remove()     # or: with faults.add(…):
    faults.list(), faults.remove("f1"), faults.remove_all()                             # or: with Faults(…) as faults:

    faults.recorder.start(); faults.recorder.requests(api="Produce", topic="orders")     # or: with faults.recorder:
    faults.recorder.wait(1, api="Fetch"); faults.recorder.save("requests.jsonl"); faults.recorder.stop()

    faults.node(1).kill(); faults.node(1).start()
    with faults.node(1).slow_disk(50), faults.node(1).cut_off(2), faults.node(0).paused(): ...
    Scenario.load("incident.yaml").run(faults)

The cluster's processes must run with barnabas.faults.enable=true, e.g. LocalCluster(config={…}).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.faults.client import Faults
    from barnabas.faults.definition import (
        Fault,
        FaultError,
        blackhole_client,
        delay_on,
        disconnect_on,
        inject_error,
    )
    from barnabas.faults.handle import FaultHandle
    from barnabas.faults.nodes import NodeFaults
    from barnabas.faults.pages import FaultsUnavailableError
    from barnabas.faults.recording import RecordedRequest, Recorder
    from barnabas.faults.scenario import Scenario
    from barnabas.faults.waiting import FaultTimeoutError

__all__ = [
    "Fault",
    "FaultError",
    "FaultHandle",
    "FaultTimeoutError",
    "Faults",
    "FaultsUnavailableError",
    "NodeFaults",
    "RecordedRequest",
    "Recorder",
    "Scenario",
    "blackhole_client",
    "delay_on",
    "disconnect_on",
    "inject_error",
]

# Why lazily: a broker with fault injection needs the definition only, and no HTTP client.
_MODULES = {
    "Faults": "client",
    "FaultHandle": "handle",
    "FaultTimeoutError": "waiting",
    **dict.fromkeys(
        ("Fault", "FaultError", "blackhole_client", "delay_on", "disconnect_on", "inject_error"), "definition"
    ),
    "FaultsUnavailableError": "pages",
    "NodeFaults": "nodes",
    "RecordedRequest": "recording",
    "Recorder": "recording",
    "Scenario": "scenario",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
