"""A Barnabas cluster on one machine: one controller and N brokers as child processes of this one.

`LocalCluster` owns the processes; `barnabas up` and the tests are thin shells around it. The next run on the same
directory reuses its content:

    DIR/cluster.json            {"bootstrap", "supervisor_pid", "processes": [...]}, each process
                                {"role", "id", "pid", "port", "metrics_port"}, and "controller_port" if a broker is
                                a controller, too; exists only while the cluster runs
    DIR/supervisor.lock         locked (flock) by the one process that runs a cluster here
    DIR/control.sock            takes the requests of `barnabas node`: kill, stop, start, pause or resume
    DIR/controller-100/         server.properties, data/, process.log
    DIR/broker-0/ ...           the same for each broker

| module          | holds                                                                             |
|-----------------|-----------------------------------------------------------------------------------|
| `plan`          | what each node gets: addresses, ports, server properties                          |
| `directory`     | the lock of the directory, reserved ports, cluster.json                           |
| `node`          | one process: its addresses, its files, its child process                          |
| `processes`     | starts, signals and ends a node's process                                         |
| `readiness`     | waits until clients can use the nodes                                             |
| `plain_probe`   | what that asks the nodes of a cluster without security                            |
| `local_cluster` | `LocalCluster`, which puts these together                                         |

*Threads*: a LocalCluster belongs to the thread that calls it. Only `kill` may also be called from a signal handler.

*Orphans*: however this process dies, the kernel then kills its children, including paused ones (prctl PR_SET_PDEATHSIG
in `barnabas.common.processes.process`). Each child has its own session: a Ctrl-C on the terminal reaches only this
process.

The names below are imported when they are first used, so that `barnabas --version` does not load them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from barnabas.common.processes import linux

if TYPE_CHECKING:
    from barnabas.cluster.errors import CancelledError, ClusterError, ProcessDiedError
    from barnabas.cluster.local_cluster import LocalCluster
    from barnabas.cluster.node import Node
    from barnabas.cluster.plan import CONTROLLER_ID, ports_up
    from barnabas.cluster.readiness import PROBE_TIMEOUT_MS, known_brokers
    from barnabas.common.processes.cluster_file import ClusterFile, is_supervisor, read_cluster_file
    from barnabas.common.processes.ports import HOST, free_ports

linux.require()

__all__ = [
    "CONTROLLER_ID",
    "HOST",
    "PROBE_TIMEOUT_MS",
    "CancelledError",
    "ClusterError",
    "ClusterFile",
    "LocalCluster",
    "Node",
    "ProcessDiedError",
    "free_ports",
    "is_supervisor",
    "known_brokers",
    "ports_up",
    "read_cluster_file",
]

_MODULES = {
    **dict.fromkeys(("CancelledError", "ClusterError", "ProcessDiedError"), "barnabas.cluster.errors"),
    "LocalCluster": "barnabas.cluster.local_cluster",
    "Node": "barnabas.cluster.node",
    **dict.fromkeys(("CONTROLLER_ID", "ports_up"), "barnabas.cluster.plan"),
    **dict.fromkeys(("PROBE_TIMEOUT_MS", "known_brokers"), "barnabas.cluster.readiness"),
    **dict.fromkeys(("ClusterFile", "is_supervisor", "read_cluster_file"), "barnabas.common.processes.cluster_file"),
    **dict.fromkeys(("HOST", "free_ports"), "barnabas.common.processes.ports"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
