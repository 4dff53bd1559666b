"""The processes of the cluster with known pages: the setting `barnabas.live.peers`, which `barnabas up` sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.common.pages.page_addresses import page_addresses

if TYPE_CHECKING:
    from barnabas.common.pages.live_shape import Peer


def peers(texts: Sequence[str], own_role: str, own_id: int) -> list[Peer]:
    """Return the processes of the setting, brokers first, with a mark on this one."""
    return [
        {"id": id_, "role": role, "address": address, "is_self": (role, id_) == (own_role, own_id)}
        for role, id_, address in page_addresses(texts)
    ]
