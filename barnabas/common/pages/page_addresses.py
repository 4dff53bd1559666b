"""The addresses of the pages of all processes: the format of `barnabas.live.peers`.

Format: ROLE-ID=HOST:PORT, ..., for example broker-0=127.0.0.1:41233,controller-100=127.0.0.1:41236
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class PageAddress(NamedTuple):
    """A process and the host:port of its pages."""

    role: str  # "broker" or "controller"
    id: int
    address: str


def page_addresses(texts: Iterable[str]) -> list[PageAddress]:
    """Return the addresses in a checked value of the setting, brokers first."""
    found = []
    for text in texts:
        name, _, address = text.partition("=")
        role, _, number = name.partition("-")
        found.append(PageAddress(role, int(number), address))
    return sorted(found)
