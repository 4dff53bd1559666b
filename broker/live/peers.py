"""The processes of the cluster whose pages are known: `barnabas.live.peers`, as `barnabas up` sets it."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.common.live_shape import Peer
from barnabas.common.page_addresses import page_addresses


def peers(texts: Sequence[str], own_role: str, own_id: int) -> list[Peer]:
    """What the setting says, for a process to show; brokers first."""
    return [
        {"id": id_, "role": role, "address": address, "is_self": (role, id_) == (own_role, own_id)}
        for role, id_, address in page_addresses(texts)
    ]
