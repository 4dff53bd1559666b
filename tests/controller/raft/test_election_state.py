"""The quorum-state file, in Kafka's JSON."""

from __future__ import annotations

import pytest

from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.ids import uuid_from_string
from barnabas.controller.raft.election_state import (
    ElectionState,
    QuorumStateError,
    QuorumStateFile,
    decode_quorum_state,
    encode_quorum_state,
)
from barnabas.controller.raft.voter_set import ReplicaKey

DIRECTORY = "MWxCj5oNQGCFxyXkYQ1pPA"
VERSION_0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
)
VERSION_1 = b'{"leaderId":-1,"leaderEpoch":8,"votedId":2,"votedDirectoryId":"MWxCj5oNQGCFxyXkYQ1pPA","data_version":1}'
LED = ElectionState(7, 1)
VOTED = ElectionState(8, None, ReplicaKey(2, uuid_from_string(DIRECTORY)))


def test_both_versions_are_kafkas_json() -> None:
    assert encode_quorum_state(LED, 0, (1, 2)) == VERSION_0
    assert encode_quorum_state(VOTED, 1, (1, 2)) == VERSION_1
    assert encode_quorum_state(LED, 0, (1, 2), 5) == VERSION_0.replace(b'Offset":0', b'Offset":5')
    assert decode_quorum_state(VERSION_0) == LED
    assert decode_quorum_state(VERSION_1) == VOTED


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff",
        b"[" * 100_000,
        VERSION_0[:-1],
        VERSION_0.replace(b'"data_version":0', b'"data_version":2'),
        VERSION_0.replace(b'"leaderEpoch":7', b'"leaderEpoch":"7"'),
        VERSION_0.replace(b'"leaderEpoch":7', b'"leaderEpoch":true'),
        VERSION_0.replace(b'"leaderEpoch":7', b'"leaderEpoch":99999999999'),
        VERSION_1.replace(b"MWxC", b"?"),
    ],
)
def test_a_damaged_file_is_no_empty_state(content: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_quorum_state(content)


def test_the_file_survives_a_power_cut() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/log")
    file = QuorumStateFile(fs, "/log")
    assert file.read() is None
    file.write(VOTED, 1, ())
    survivor = QuorumStateFile(fs.crash(names_survive=False), "/log")
    assert survivor.read() == VOTED


def test_an_error_names_the_file() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/log")
    fs.write_bytes("/log/quorum-state", b"", sync=True)
    with pytest.raises(QuorumStateError, match="/log/quorum-state cannot be read"):
        QuorumStateFile(fs, "/log").read()


def test_version_0_keeps_where_the_log_of_a_single_controller_ended() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/log")
    file = QuorumStateFile(fs, "/log")
    assert file.applied_offset() is None
    file.write(VOTED, 0, (1,), 5)
    assert file.applied_offset() == 5
    file.write(VOTED, 1, (), 5)
    assert file.applied_offset() == 0
    file.write(VOTED, 0, ())
    fs.write_bytes(
        "/log/quorum-state", fs.read_bytes("/log/quorum-state").replace(b'Offset":0', b'Offset":""'), sync=True
    )
    with pytest.raises(QuorumStateError, match="its appliedOffset is ''"):
        file.applied_offset()


def test_version_0_names_the_voters() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/log")
    file = QuorumStateFile(fs, "/log")
    assert file.voter_ids() == ()
    file.write(VOTED, 0, (1, 2, 3))
    assert file.voter_ids() == (1, 2, 3)
    file.write(VOTED, 1, (1, 2, 3))
    assert file.voter_ids() == ()
    file.write(VOTED, 0, (1,))
    fs.write_bytes("/log/quorum-state", fs.read_bytes("/log/quorum-state").replace(b"voterId", b"other"), sync=True)
    with pytest.raises(QuorumStateError, match="its voters are damaged"):
        file.voter_ids()


def test_a_controller_that_is_alone_again_keeps_its_vote_and_has_no_end_of_the_former_log() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/log")
    file = QuorumStateFile(fs, "/log")
    file.leave_quorum()
    assert file.read() is None
    file.write(VOTED, 0, (1,), 5)
    file.leave_quorum()
    assert file.applied_offset() is None
    assert file.voter_ids() == (1,)
    assert file.read() == VOTED._replace(voted=ReplicaKey(VOTED.voted.id))
    file.write(VOTED, 1, ())
    file.leave_quorum()
    assert file.read() == VOTED
    assert file.applied_offset() == 0
