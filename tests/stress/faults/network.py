"""A separate network for each node, whose links can be cut in either direction.

The program runs in its own network and mount namespace (`enter` starts it again inside them). They end with the last
process, so there is nothing to clean up. In them, a bridge connects the test, at 10.77.0.1, with one namespace for each
node, at 10.77.0.10 and up.

To cut a link in one direction, the sender's kernel gets a wrong hardware address for the receiver. Packets leave but
never arrive, as on a broken network, and TCP on both ends sees only silence. A missing route would give the sender an
error instead.

Needs `ip` of iproute2, and root or a kernel that allows user namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

INSIDE_VARIABLE = "BARNABAS_STRESS_NETWORK"
DEVICE = "eth0"
NOBODY = "02:ff:ff:ff:ff:ff"
FIRST_ADDRESS = 10


def is_inside() -> bool:
    """Whether `enter` started this process."""
    return INSIDE_VARIABLE in os.environ


def is_possible() -> bool:
    """Whether `enter` would work here."""
    if any(shutil.which(tool) is None for tool in ("ip", "unshare", "nsenter", "mount")):
        return False
    probe = "mount -t tmpfs none /run && ip link add probe type bridge && ip netns add probe"
    return subprocess.run([*_unshare(), "sh", "-c", probe], capture_output=True, check=False).returncode == 0


def enter(arguments: Sequence[str]) -> None:
    """Replace this process by `python <arguments>` in new namespaces."""
    environment = {**os.environ, INSIDE_VARIABLE: "1"}
    os.execvpe("unshare", [*_unshare(), sys.executable, *arguments], environment)


def _unshare() -> list[str]:
    return ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


class Network:
    """The namespaces of nodes, connected by a bridge. Owner: the thread that cuts and heals links."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self.cuts: set[tuple[int, int]] = set()  # owner: the thread that cuts and heals links; (source, target)
        self._hosts = {node_id: f"10.77.0.{FIRST_ADDRESS + n}" for n, node_id in enumerate(node_ids)}

    def start(self) -> None:
        """Create the namespaces and links; raises CalledProcessError."""
        _run("mount", "-t", "tmpfs", "none", "/run")  # for `ip netns`; users cannot write to /run
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge", "type", "bridge")
        _ip("addr", "add", "10.77.0.1/24", "dev", "bridge")
        _ip("link", "set", "bridge", "up")
        for node_id, host in self._hosts.items():
            name, port = _name(node_id), f"port-{node_id}"
            _ip("netns", "add", name)
            _ip("link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", name)
            _ip("link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "addr", "add", f"{host}/24", "dev", DEVICE)
            _ip("-n", name, "link", "set", DEVICE, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def host(self, node_id: int) -> str:
        """The address of a node."""
        return self._hosts[node_id]

    def command(self, node_id: int, command: Sequence[str]) -> list[str]:
        """The command line that executes `command` (under the same pid) in the node's namespace."""
        return ["nsenter", f"--net=/run/netns/{_name(node_id)}", "--", *command]

    def cut(self, source: int, target: int) -> None:
        """Drop everything that `source` sends to `target`, until `heal`."""
        _ip("-n", _name(source), "neigh", "replace", self._hosts[target], "lladdr", NOBODY, "dev", DEVICE, "nud",
            "permanent")  # fmt: skip
        self.cuts.add((source, target))

    def heal(self, source: int, target: int) -> None:
        """Undo `cut`."""
        _ip("-n", _name(source), "neigh", "del", self._hosts[target], "dev", DEVICE)
        self.cuts.discard((source, target))


def _name(node_id: int) -> str:
    return f"node-{node_id}"


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
