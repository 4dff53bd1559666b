"""Which log a controller opens: alone, or as a replica of a quorum."""

from __future__ import annotations

import pytest

from barnabas.client.connection import NodeConnection
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.controller.metadata.local_client import LocalClient
from barnabas.controller.metadata.metadata_directory import DirectoryError, MetadataDirectory
from barnabas.controller.metadata.opened_log import names_several, open_log, own_listeners
from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.client.driver import RaftDriver
from barnabas.controller.raft.client.raft_log import RaftLog
from barnabas.controller.raft.effects import Persist
from barnabas.controller.raft.election_state import ElectionState, QuorumStateFile
from barnabas.controller.raft.log_outline import Membership, OffsetAndEpoch
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.data.control_records import KRaftVersionRecord
from barnabas.protocol.records.batch import set_offset_and_epoch
from tests.controller.raft.client.rig import batch_of, listeners_of, voters_of
from tests.controller.raft.client.rig import open_log as raft_log
from tests.controller.rig import CLUSTER_ID, DIRECTORY, make_config

VOTERS = "100@a:1,101@b:1,102@c:1"
LOG = f"{DIRECTORY}/__cluster_metadata-0"


def opened(fs: MemoryFileSystem, **config: str) -> object:
    settings = make_config(**config)
    directory = MetadataDirectory.open(fs, DIRECTORY, 100, CLUSTER_ID)
    try:
        result = open_log(settings, directory, lambda host, port: NodeConnection(host, port), FakeClock(), fs)
        assert (result.raft is None) == isinstance(result.log, LocalClient)
        result.flush()
        return result.log
    finally:
        directory.close()


def test_a_controller_that_knows_others_is_a_replica() -> None:
    assert isinstance(opened(MemoryFileSystem()), LocalClient)
    assert isinstance(opened(MemoryFileSystem(), controller_quorum_voters="100@a:1"), LocalClient)
    fs = MemoryFileSystem()
    assert isinstance(opened(fs, controller_quorum_bootstrap_servers="a:1,b:1"), RaftDriver)
    assert isinstance(opened(fs, controller_quorum_bootstrap_servers="", controller_quorum_voters=VOTERS), RaftDriver)
    assert names_several(make_config(controller_quorum_bootstrap_servers="a:1,b:1"))


def test_the_log_of_a_quorum_is_not_opened_alone() -> None:
    fs = MemoryFileSystem()
    fs.mkdir(DIRECTORY)
    fs.mkdir(LOG)
    file = QuorumStateFile(fs, LOG)
    file.write(ElectionState(3), 0, (100, 101, 102))
    with pytest.raises(
        DirectoryError, match="a quorum of the controllers 100, 101, 102, but the configuration names 1"
    ):
        opened(fs)
    with pytest.raises(DirectoryError, match="configuration names 100, 101, 102, 103: static voters cannot be changed"):
        opened(fs, controller_quorum_voters=f"{VOTERS},103@d:1")
    assert isinstance(opened(fs, controller_quorum_voters=VOTERS), RaftDriver)
    file.write(ElectionState(3), 0, (100,))
    assert isinstance(opened(fs), LocalClient)
    fs.write_bytes(f"{LOG}/quorum-state", b"?", sync=True)
    with pytest.raises(DirectoryError, match="quorum-state cannot be read"):
        opened(fs)


@pytest.mark.parametrize("where", ["log", "snapshot", "log after an upgrade"])
def test_a_log_that_has_its_voters_is_opened_as_a_replica(where: str) -> None:
    fs = MemoryFileSystem()
    MetadataDirectory.open(fs, DIRECTORY, 100, CLUSTER_ID).close()
    voters = voters_of(100, 101)
    log = raft_log(fs, voters)
    if where == "snapshot":
        log.snapshots.write(OffsetAndEpoch(0, 0), [], voters, 1)  # as `kafka-storage format` does
    else:
        version = KRaftVersionRecord(version=0, kraft_version=1)
        log.append([Batch(0, 1, 1, (version, voters.voters.to_record()), None)])
        log.flush()
        # An upgrade leaves the file as it is until the next election.
        is_upgraded = where == "log after an upgrade"
        QuorumStateFile(fs, LOG).write(ElectionState(1), 0 if is_upgraded else 1, (100, 101) if is_upgraded else ())
    log.close()
    for _ in range(2):
        found = opened(fs)
        assert isinstance(found, RaftDriver)
        assert [member.key.id for member in found.status().voters] == [100, 101]


@pytest.mark.parametrize("voters", [(100,), (100, 101)])
@pytest.mark.parametrize("where", ["log", "snapshot", "first snapshot"])
def test_a_log_that_has_its_voters_is_not_opened_without_its_votes(where: str, voters: tuple[int, ...]) -> None:
    fs = MemoryFileSystem()
    identity = MetadataDirectory.open(fs, DIRECTORY, 100, CLUSTER_ID)
    identity.close()
    own = VoterNode(ReplicaKey(100, identity.directory_id), listeners_of(100), (0, 1))
    membership = Membership(
        -1, 1, VoterSet([own, *(voter for voter in voters_of(*voters).voters if voter.key.id != 100)])
    )
    data = batch_of("a")
    if where == "log":
        log = raft_log(fs, voters_of(100, kraft_version=0))
        version = KRaftVersionRecord(version=0, kraft_version=1)
        set_offset_and_epoch(data, 2, 1)
        log.append([Batch(0, 1, 1, (version, membership.voters.to_record()), None), Batch(2, 2, 1, (), data)])
        log.flush()
        log.close()
    else:
        log = raft_log(fs, membership)
        end = OffsetAndEpoch(0, 0) if where == "first snapshot" else OffsetAndEpoch(5, 1)
        log.snapshots.write(end, [], membership, 1)
        log.close()
        log = raft_log(fs, membership)
        set_offset_and_epoch(data, end.offset, 1)
        log.append([Batch(end.offset, end.offset, 1, (), data)])
        log.flush()
        log.close()
    if len(voters) > 1:
        for names in ({}, {"controller_quorum_bootstrap_servers": "a:1,b:1"}):
            with pytest.raises(DirectoryError, match="has no quorum-state, so the votes of this controller are lost"):
                opened(fs, **names)
        QuorumStateFile(fs, LOG).write(ElectionState(1), 1, ())
    found = opened(fs)
    assert isinstance(found, RaftDriver)
    assert sorted(member.key.id for member in found.status().voters) == list(voters)


def test_a_directory_that_was_formatted_without_voters_is_an_observer_s_from_its_first_start_on() -> None:
    """Otherwise it would elect itself, and there were two clusters with one id."""
    fs = MemoryFileSystem()
    fs.mkdir(DIRECTORY)
    fs.write_bytes(f"{DIRECTORY}/bootstrap.checkpoint", b"", sync=True)
    assert isinstance(
        opened(fs, controller_quorum_bootstrap_servers="", controller_quorum_voters="100@a:1"), LocalClient
    )
    fs = MemoryFileSystem()
    fs.mkdir(DIRECTORY)
    MetadataDirectory.open(fs, DIRECTORY, 100, CLUSTER_ID).close()  # as the command writes meta.properties
    fs.write_bytes(f"{DIRECTORY}/bootstrap.checkpoint", b"", sync=True)
    found = opened(fs)
    assert isinstance(found, RaftDriver)
    assert not found.status().voters
    assert isinstance(opened(fs), RaftDriver), "the log has its files, and there is no quorum-state yet"
    QuorumStateFile(fs, LOG).write(ElectionState(0), 0, ())
    assert isinstance(opened(fs), RaftDriver)
    alone = MemoryFileSystem()
    log = raft_log(alone, voters_of(100, kraft_version=0))
    batch = batch_of("a")
    set_offset_and_epoch(batch, 0, 1)
    log.append([Batch(0, 0, 1, (), batch)])
    log.flush()
    log.close()
    alone.write_bytes(f"{DIRECTORY}/bootstrap.checkpoint", b"", sync=True)
    assert isinstance(opened(alone), LocalClient), "a single controller's log, as earlier releases opened it"


def test_a_directory_that_was_not_formatted_may_have_the_first_records() -> None:
    fs = MemoryFileSystem()
    fs.mkdir(DIRECTORY)
    fs.write_bytes(f"{DIRECTORY}/bootstrap.checkpoint", b"", sync=True)
    assert isinstance(opened(fs), LocalClient)


def test_the_own_listeners_are_those_that_the_voters_name() -> None:
    config = make_config(controller_quorum_voters=VOTERS, listeners="CONTROLLER://127.0.0.1:7")
    assert own_listeners(config) == (Listener("CONTROLLER", "a", 1),)
    config = make_config(listeners="CONTROLLER://127.0.0.1:7")
    assert own_listeners(config) == (Listener("CONTROLLER", "127.0.0.1", 7),)


def test_a_new_directory_of_a_quorum_is_told_its_cluster() -> None:
    fs = MemoryFileSystem()
    with pytest.raises(DirectoryError, match="start all controllers with the same CLUSTER_ID"):
        MetadataDirectory.open(fs, DIRECTORY, 100, None, is_alone=False)
    first = MetadataDirectory.open(fs, DIRECTORY, 100, CLUSTER_ID, is_alone=False)
    first.close()
    again = MetadataDirectory.open(fs, DIRECTORY, 100, None, is_alone=False)
    assert (again.cluster_id, again.directory_id) == (CLUSTER_ID, first.directory_id)
    assert len(first.directory_id) == 16
    again.close()
    properties = f"{DIRECTORY}/meta.properties"
    fs.write_bytes(properties, b"version=1\ncluster.id=x\nnode.id=100\ndirectory.id=!\n", sync=True)
    with pytest.raises(DirectoryError, match=r"directory\.id=! is not an id"):
        MetadataDirectory.open(fs, DIRECTORY, 100, None)


def test_what_a_controller_writes_alone_after_it_left_a_quorum_counts_as_committed_too() -> None:
    fs = MemoryFileSystem()
    static = voters_of(100, kraft_version=0)

    def write(epoch: int, *names: str) -> None:
        alone = opened(fs)
        assert isinstance(alone, LocalClient)
        log = raft_log(fs, static)
        data = batch_of(*names)
        set_offset_and_epoch(data, log.outline.end_offset, epoch)
        log.append([Batch(log.outline.end_offset, log.outline.end_offset + len(names) - 1, epoch, (), data)])
        log.flush()
        log.close()
        QuorumStateFile(fs, log.path).leave_quorum()  # it wrote alone, although with the log of a replica

    def join() -> int:
        log = raft_log(fs, static)
        log.persist(Persist(ElectionState(9), 0, (100,)))
        log.close()
        return log.outline.committed_at_start

    write(1, "a", "b")
    assert join() == 2
    assert join() == 2
    write(2, "c")
    assert join() == 3
    write(2, "d")
    assert join() == 4


def test_records_of_a_leader_do_not_count_as_a_single_controller_s() -> None:
    """quorum-state may stay as it is: this controller goes on with the leader that it followed before it was alone."""
    fs = MemoryFileSystem()
    static = voters_of(100, kraft_version=0)
    log = raft_log(fs, static)
    log.persist(Persist(ElectionState(9, 101), 0, (100,)))
    log.close()
    opened(fs)
    for _ in range(2):
        log = raft_log(fs, static)
        log.append([Batch(log.outline.end_offset, log.outline.end_offset, 9, (), leaders_batch(log))])
        log.flush()
        log.close()
    assert raft_log(fs, static).outline.committed_at_start == -1


def leaders_batch(log: RaftLog) -> bytearray:
    data = batch_of("x")
    set_offset_and_epoch(data, log.outline.end_offset, 9)
    return data


def test_what_a_kill_left_of_a_file_that_was_being_written_is_removed() -> None:
    for voters in ("", VOTERS):
        fs = MemoryFileSystem()
        fs.mkdir(LOG)
        for name in ("00000000000000000009-0000000001.checkpoint.tmp", "quorum-state.tmp"):
            fs.write_bytes(f"{LOG}/{name}", b"x", sync=True)
        opened(fs, controller_quorum_voters=voters)
        assert not [entry.name for entry in fs.listdir(LOG) if entry.name.endswith(".tmp")]
