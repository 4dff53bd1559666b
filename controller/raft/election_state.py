"""The election state of a replica, and the `quorum-state` file that keeps it: Kafka's JSON, versions 0 and 1.

Rules
1. The file is durable before any message that relies on it leaves: a replica votes once in an epoch.
2. kraft.version 0 writes version 0, which has the ids of the voters and no directory ids; kraft.version 1 writes
   version 1. Either is read.
3. A file that cannot be read is an error, never an empty state. The replica could vote twice.
4. A vote is kept with the directory of the candidate. A replica whose disk was lost has no file, and begins with a new
   directory id: it is no voter under kraft.version 1, and a vote asked of its old directory is refused.
5. `appliedOffset` of version 0, which Kafka no longer uses, is where the log of a single controller ended when that
   joined a quorum. All before it is committed, although no high watermark says so (raft_log.py). While a controller is
   alone again, it is -1: the log goes on, and counts whole when the controller joins a quorum again.

Source: ElectionState, FileQuorumStateStore, QuorumStateData (Kafka 4.3).
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from barnabas.common.disk.files import FileSystem
from barnabas.common.ids import ZERO_UUID, uuid_from_string, uuid_to_string
from barnabas.controller.raft.voter_set import ReplicaKey

QUORUM_STATE_FILE: Final = "quorum-state"
DATA_VERSION: Final = "data_version"
NONE: Final = -1
ALONE: Final = -1
"""`appliedOffset` while a controller is alone (rule 5)."""


class QuorumStateError(Exception):
    """A quorum-state file that cannot be read (rule 3)."""


class ElectionState(NamedTuple):
    """The state that outlives a restart: the epoch, its leader if known, and the vote that was given."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None


def encode_quorum_state(
    state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...], applied_offset: int = 0
) -> bytes:
    """Return the content of the file (rules 2 and 5)."""
    leader_id = NONE if state.leader_id is None else state.leader_id
    voted_id = NONE if state.voted is None else state.voted.id
    fields: dict[str, object] = {"leaderId": leader_id, "leaderEpoch": state.epoch, "votedId": voted_id}
    if kraft_version == 0:
        voters = [{"voterId": voter_id} for voter_id in voter_ids]
        fields = {"clusterId": "", **fields, "appliedOffset": applied_offset, "currentVoters": voters}
    else:
        fields["votedDirectoryId"] = uuid_to_string(ZERO_UUID if state.voted is None else state.voted.directory_id)
    fields[DATA_VERSION] = min(kraft_version, 1)
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(content: bytes) -> ElectionState:
    """Return the state in a file of either version; raises QuorumStateError."""
    try:
        fields = json.loads(content)
        version = fields[DATA_VERSION]
        if version not in (0, 1):
            raise QuorumStateError(f"its version is {version!r}; versions 0 and 1 are known")
        numbers = [fields[name] for name in ("leaderEpoch", "leaderId", "votedId")]
        if any(type(number) is not int or not NONE <= number < 1 << 31 for number in numbers):
            raise QuorumStateError(f"it has the numbers {numbers}")
        epoch, leader_id, voted_id = numbers
        directory_id = uuid_from_string(fields["votedDirectoryId"]) if version == 1 else ZERO_UUID
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise QuorumStateError(f"it is damaged: {error!r}") from error
    return ElectionState(
        max(epoch, 0),
        None if leader_id == NONE else leader_id,
        None if voted_id == NONE else ReplicaKey(voted_id, directory_id),
    )


class QuorumStateFile:
    """The quorum-state file in the directory of the log."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs  # fixed before start
        self._path = f"{directory}/{QUORUM_STATE_FILE}"  # fixed before start

    def read(self) -> ElectionState | None:
        """Return the state; None without a file. Raises QuorumStateError, which names the file."""
        if not self._fs.exists(self._path):
            return None
        try:
            return decode_quorum_state(self._fs.read_bytes(self._path))
        except QuorumStateError as error:
            raise QuorumStateError(f"{self._path} cannot be read: {error}") from error

    def version(self) -> int:
        """Return the version of the file, which is the kraft.version; 0 without a file. Raises QuorumStateError."""
        if self.read() is None:
            return 0
        return int(json.loads(self._fs.read_bytes(self._path))[DATA_VERSION])

    def voter_ids(self) -> tuple[int, ...]:
        """Return the voters that the file names, as version 0 does; raises QuorumStateError, which names the file."""
        if self.read() is None:
            return ()
        try:
            voters = json.loads(self._fs.read_bytes(self._path)).get("currentVoters") or ()
            return tuple(int(voter["voterId"]) for voter in voters)
        except (ValueError, KeyError, TypeError) as error:
            raise QuorumStateError(f"{self._path} cannot be read: its voters are damaged: {error!r}") from error

    def applied_offset(self) -> int | None:
        """Return the end of the single controller's log (rule 5); None if all of the log is a single controller's.

        Raises QuorumStateError.
        """
        if self.read() is None:
            return None
        found = json.loads(self._fs.read_bytes(self._path)).get("appliedOffset", 0)
        if type(found) is not int:
            raise QuorumStateError(f"{self._path} cannot be read: its appliedOffset is {found!r}")
        return None if found == ALONE else found

    def leave_quorum(self) -> None:
        """Note, durably, that a single controller goes on with the log (rule 5); raises QuorumStateError.

        Why the file stays: it has the vote of its epoch.
        """
        state = self.read()
        if state is None or self.version() != 0:
            return
        if self.applied_offset() is not None:
            self.write(state, 0, self.voter_ids(), ALONE)

    def join_quorum(self, end_offset: int) -> None:
        """Note, durably, where the log of the single controller ended (rule 5), before others' records follow it."""
        state = self.read()
        if state is not None and self.applied_offset() is None:
            self.write(state, 0, self.voter_ids(), end_offset)

    def write(
        self, state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...], applied_offset: int = 0
    ) -> None:
        """Write the state; it survives a power cut on return."""
        content = encode_quorum_state(state, kraft_version, voter_ids, applied_offset)
        self._fs.atomic_write(self._path, content)
