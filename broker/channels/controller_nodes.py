"""ControllerNodes: which controllers there are, and which one is active, as far as pushes and the configuration say.

The active controller pushes to all brokers as soon as it is elected. So its first push is the news that the requests to
its predecessor are in vain. A single controller is not followed: it may have registered an address that this broker
cannot reach, and the requests go to it already. The addresses come from controller.quorum.voters, and from the
registrations of the controllers, which pushes carry. Without an address there is no news, and the next one is found by
trying.

Threads: the handlers of pushes call `pushed`, one at a time (the push gate); the rest is fixed before start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from barnabas.protocol.metadata_records import RegisterControllerRecord

Address: TypeAlias = tuple[str, int]


class ControllerNodes:
    """See the module."""

    def __init__(self, voters: Mapping[int, Address], listener_names: Sequence[str]) -> None:
        self._addresses = dict(voters)  # guarded by: the lock of the push gate; by controller id
        self._listener_names = [name.upper() for name in listener_names]  # fixed before start
        self.active_id = -1  # guarded by: the lock of the push gate; the sender of the last push
        self.followers: list[Callable[[Address], None]] = []  # fixed before start

    def pushed(self, controller_id: int, registrations: Iterable[RegisterControllerRecord] = ()) -> None:
        """Note the sender of a push, and the controllers that the push names."""
        for record in registrations:
            address = self._address_of(record)
            if address is not None:
                self._addresses[record.controller_id] = address
        if controller_id == self.active_id:
            return
        self.active_id = controller_id
        active = self._addresses.get(controller_id)
        if active is not None and len(self._addresses) > 1:
            for follow in self.followers:
                follow(active)

    def _address_of(self, record: RegisterControllerRecord) -> Address | None:
        """Return the address of the first listener that brokers use (controller.listener.names)."""
        found = {endpoint.name.upper(): (endpoint.host, endpoint.port) for endpoint in record.end_points}
        return next((found[name] for name in self._listener_names if name in found), None)
