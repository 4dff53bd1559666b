"""The name by which other machines find this one, if nothing else is configured."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Final

HOSTS: Final = "/etc/hosts"


def own_host_name(hosts: str = HOSTS) -> str:
    """Return the name of this host, with the domain that the file of hosts gives it.

    Why the domain: the others of a StatefulSet, or in another domain, do not know the bare name; Kafka registers the
    canonical name too. Why not getfqdn: it asks the DNS, and a start would wait for that.
    """
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        for line in Path(hosts).read_text(encoding="utf-8", errors="replace").splitlines():
            names = line.partition("#")[0].split()[1:]
            if name in names:
                return next((found for found in names if found.startswith(f"{name}.")), name)
    return name
