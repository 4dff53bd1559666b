"""The processes of the cluster whose pages are known: `barnabas.live.peers`, as `barnabas up` sets it.

Format: ROLE-ID=HOST:PORT, ..., for example broker-0=127.0.0.1:41233,controller-100=127.0.0.1:41236
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.common.live_shape import Peer


def peers(texts: Sequence[str], own_role: str, own_id: int) -> list[Peer]:
    """Read the setting, which was checked before; brokers first."""
    told: list[Peer] = []
    for text in texts:
        name, _, address = text.partition("=")
        role, _, number = name.partition("-")
        is_self = (role, int(number)) == (own_role, own_id)
        told.append({"id": int(number), "role": role, "address": address, "is_self": is_self})
    return sorted(told, key=lambda peer: (peer["role"], peer["id"]))
