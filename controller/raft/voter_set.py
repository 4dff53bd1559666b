"""The voters of the quorum, each with its directory id and endpoints.

Rules
1. A voter is an id and the id of its log directory. The same controller with a new disk is another replica.
2. Under kraft.version 0 voters have no directory id (the zero id), and a voter's id alone decides.
3. A change adds or removes one voter, so that every majority of the old set meets every majority of the new one.

Source: ReplicaKey, VoterSet, Endpoints (Kafka 4.3); KIP-853.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.data.control_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersVoter

KRAFT_VERSION_FEATURE: Final = "kraft.version"


class ReplicaKey(NamedTuple):
    """A replica: the node and its log directory (rule 1)."""

    id: int
    directory_id: bytes = ZERO_UUID

    def matches(self, other: ReplicaKey) -> bool:
        """Return whether `other` is this voter; a voter without a directory id matches every directory (rule 2)."""
        return self.id == other.id and self.directory_id in (other.directory_id, ZERO_UUID)


class Listener(NamedTuple):
    """Where a replica is reached by one listener."""

    name: str
    host: str
    port: int


class VoterNode(NamedTuple):
    """A voter: its key, listeners and the versions of kraft.version that it supports."""

    key: ReplicaKey
    listeners: tuple[Listener, ...] = ()
    kraft_versions: tuple[int, int] = (0, 0)

    def listener(self, name: str) -> Listener | None:
        """Return the listener of this name."""
        return next((listener for listener in self.listeners if listener.name == name), None)


class VoterSet:
    """A set of voters; immutable."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Iterable[VoterNode] = ()) -> None:
        self._nodes = {node.key.id: node for node in nodes}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._nodes.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._nodes == other._nodes

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VoterSet({sorted(self._nodes)})"

    def get(self, voter_id: int) -> VoterNode | None:
        """Return the voter with this id."""
        return self._nodes.get(voter_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Return whether this replica, with this directory, is a voter."""
        node = self._nodes.get(key.id)
        return node is not None and node.key.matches(key)

    @property
    def majority(self) -> int:
        """How many voters are a majority."""
        return len(self._nodes) // 2 + 1

    def add(self, voter: VoterNode) -> VoterSet | None:
        """Return the set with one more voter; None if its id is a voter already."""
        return None if voter.key.id in self._nodes else VoterSet([*self, voter])

    def remove(self, key: ReplicaKey) -> VoterSet | None:
        """Return the set without this voter; None if it is no voter or the only one."""
        node = self._nodes.get(key.id)
        if node is None or node.key != key or len(self._nodes) == 1:
            return None
        return VoterSet(other for other in self if other is not node)

    def update(self, voter: VoterNode) -> VoterSet | None:
        """Return the set with other listeners and versions for this voter; None if it is no voter."""
        if not self.is_voter(voter.key):
            return None
        return VoterSet(voter if node.key.id == voter.key.id else node for node in self)

    def describe(self, voter: VoterNode) -> VoterSet | None:
        """Return the set with what is known of a static voter, its directory as well; None if its id is no voter."""
        if voter.key.id not in self._nodes:
            return None
        return VoterSet(voter if node.key.id == voter.key.id else node for node in self)

    def without_support(self, kraft_version: int) -> list[int]:
        """Return the voters that do not support a version, or whose directory is not known."""
        return [
            node.key.id
            for node in self
            if not node.kraft_versions[0] <= kraft_version <= node.kraft_versions[1]
            or (kraft_version > 0 and node.key.directory_id == ZERO_UUID)
        ]

    def has_overlapping_majority(self, other: VoterSet) -> bool:
        """Return whether at most one voter was added and at most one removed (rule 3)."""
        ours, theirs = ({node.key for node in voters} for voters in (self, other))
        return len(ours - theirs) <= 1 and len(theirs - ours) <= 1

    def to_record(self) -> VotersRecord:
        """Return the control record that holds this set."""
        return VotersRecord(
            version=0,
            voters=[
                VotersVoter(
                    voter_id=node.key.id,
                    voter_directory_id=node.key.directory_id,
                    endpoints=[Endpoint(name=name, host=host, port=port) for name, host, port in node.listeners],
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=node.kraft_versions[0], max_supported_version=node.kraft_versions[1]
                    ),
                )
                for node in self
            ],
        )

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        """Return the set that a control record holds."""
        return cls(
            VoterNode(
                ReplicaKey(voter.voter_id, bytes(voter.voter_directory_id)),
                tuple(Listener(found.name, found.host, found.port) for found in voter.endpoints),
                (
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                ),
            )
            for voter in record.voters
        )
