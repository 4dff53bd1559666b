"""UpdateFeatures: v0-v2

Behaviour: changes finalized feature levels, all of a request or none. Brokers receive them with the next push.
kraft.version 1 makes static voters dynamic ones (KIP-853): all of them must run a release that supports it.

Version notes: v0 only raises levels, since Kafka's controller ignores allow_downgrade; v1 (KIP-584) validate_only,
upgrade types; v2: one result for the whole request.

Errors: INVALID_UPDATE_VERSION.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_once, same
from barnabas.controller.decisions.features import update_features
from barnabas.controller.raft.client.interface import RaftClient


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    message = request.message
    kraft = None if services.raft is None else _KRaftVersion(services, services.raft)
    return decide_once(services, request, "updateFeatures", lambda view: update_features(view, message, kraft), same)


class _KRaftVersion:
    """The kraft.version of the quorum (KRaftVersionAccess); the event thread uses it."""

    def __init__(self, services: ControllerServices, raft: RaftClient) -> None:
        self._services = services
        self._raft = raft

    @property
    def level(self) -> int:
        """The level, committed or not."""
        return self._raft.kraft_version

    def upgrade(self, level: int, *, validate_only: bool) -> None:
        """Append the records of a higher level."""
        epoch = self._services.controller.leader.epoch
        self._raft.upgrade_kraft_version(epoch, level, validate_only=validate_only)


API = Api(57, "UpdateFeatures", (0, 2), handle, is_forwarded=True)
