"""The part of a load that changes the voters: an administrator upgrades kraft.version, then removes and adds voters.

Each round asks who votes, and adds the controller that was removed before, or else removes one. Why one at a time: the
majority of two is both. Requests go through brokers, once each; one without a clear answer is asked about in the next
round. In such a life no controller gets an empty disk, which would be another one to bring back.

Threads: a client has one task; the part is of the driver's task.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from barnabas.protocol.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, Listener
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from tests.simulation.load.clients.client import Address, Client
from tests.simulation.load.part import Part, Setting

TOPIC: Final = "__cluster_metadata"
FEATURE: Final = "kraft.version"
DESCRIBE_VERSION: Final = 2
FEATURES_VERSION: Final = 2
ADD_VERSION: Final = 1
REMOVE_VERSION: Final = 0
TIMEOUT_MS: Final = 5_000
PAUSE_S: Final = 2.0  # between two rounds


class VoterAdmin(Client):
    """See the module."""

    def __init__(self, name: str, setting: Setting) -> None:
        super().__init__(name, setting.bootstrap)
        self._setting = setting
        self._brokers: list[Address] = setting.bootstrap
        self._is_upgraded = False
        self._listeners: dict[int, list[Listener]] = {}  # controller -> where it is reached
        self._directories: dict[int, bytes] = {}  # controller -> its directory
        self.is_whole = True  # every controller votes, as far as it knows
        self.added = 0
        self.removed = 0

    def run(self) -> None:
        """Change voters until nothing breaks any more; then bring the last one back."""
        while not self.is_stopping:
            self._turn()
            self.wait(PAUSE_S)
        self.close()

    def _ask_some(self, message: Any, version: int) -> Any:
        """Send a request once, to the brokers in turn; None without an answer."""
        self._next += 1
        return self.ask(self._brokers[self._next % len(self._brokers)], message, version, TIMEOUT_MS * 2)

    def _turn(self) -> None:
        if not self._is_upgraded:
            update = FeatureUpdateKey(feature=FEATURE, max_version_level=1)
            answer = self._ask_some(UpdateFeaturesRequest(feature_updates=[update]), FEATURES_VERSION)
            self._is_upgraded = answer is not None and not answer.error_code
            return
        voters = self._voters()
        missing = sorted(self._directories.keys() - voters.keys())
        self.is_whole = bool(voters) and not missing
        if voters and missing:
            self._add(missing[0])
        elif voters and not self.is_calm:
            self._remove(sorted(voters)[self._setting.draw(len(voters))])

    def _voters(self) -> dict[int, bytes]:
        """Ask who votes, by directory; empty without an answer of the active controller."""
        topic = RequestTopicData(topic_name=TOPIC, partitions=[RequestPartitionData(partition_index=0)])
        answer = self._ask_some(DescribeQuorumRequest(topics=[topic]), DESCRIBE_VERSION)
        if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
            return {}
        for node in answer.nodes:
            self._listeners[node.node_id] = [
                Listener(name=found.name, host=found.host, port=found.port) for found in node.listeners
            ]
        voters = {
            voter.replica_id: voter.replica_directory_id for voter in answer.topics[0].partitions[0].current_voters
        }
        self._directories |= voters
        return voters

    def _add(self, controller: int) -> None:
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=TIMEOUT_MS,
            voter_id=controller,
            voter_directory_id=self._directories[controller],
            listeners=self._listeners[controller],
        )
        answer = self._ask_some(request, ADD_VERSION)
        self.added += answer is not None and answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER)

    def _remove(self, controller: int) -> None:
        directory_id = self._directories[controller]
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=controller, voter_directory_id=directory_id)
        answer = self._ask_some(request, REMOVE_VERSION)
        self.removed += answer is not None and answer.error_code == ErrorCode.NONE


class Voters(Part):
    """See the module."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self._admin = VoterAdmin("voter admin", setting)
        self.clients = [self._admin]

    def is_settled(self) -> bool:
        """See Part."""
        return self._admin.is_whole

    def summary(self) -> str:
        """See Part."""
        return f"voters: {self._admin.removed} removed, {self._admin.added} added"
