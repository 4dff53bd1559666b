"""Opens the metadata log of a controller: alone, or as one replica of a quorum.

Rules
1. A controller whose configuration names several controllers takes part in their elections (RaftDriver).
2. So does one whose directory belongs to a quorum under kraft.version 1, which has its voters in the log, or to one
   that has no voters yet, as `format --no-initial-controllers` leaves it. The directory decides, as in Kafka.
3. Any other one commits alone (LocalClient). The files are the same, so a directory can go from the one to the other.
4. A log that has its voters is refused without its quorum-state: the votes are lost, and this controller could vote
   twice in an epoch, so that two lead it. (Apache Kafka starts, with the epoch of the log and without a vote.) The only
   voter goes on: no other one could be elected by its vote, and all that it has flushed is committed.

Threads: main, before the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.storage.directories.names import CHECKPOINT_SUFFIX, LOG_SUFFIX
from barnabas.common.disk.files import TEMPORARY_SUFFIX
from barnabas.common.processes.host_name import own_host_name
from barnabas.controller.metadata.bootstrap import FILE as BOOTSTRAP_FILE
from barnabas.controller.metadata.durable_end import TOPIC_PARTITION
from barnabas.controller.metadata.local_client import LocalClient
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.controller.metadata.metadata_log import MetadataLog
from barnabas.controller.metadata.snapshot import SnapshotId
from barnabas.controller.raft.batches import control_records
from barnabas.controller.raft.client.driver import RaftDriver
from barnabas.controller.raft.client.raft_log import RaftLog
from barnabas.controller.raft.client.senders import Connect, Senders
from barnabas.controller.raft.client.settings import configured_voters, raft_config
from barnabas.controller.raft.client.snapshot_files import SnapshotFiles
from barnabas.controller.raft.election_state import QUORUM_STATE_FILE, QuorumStateError, QuorumStateFile
from barnabas.controller.raft.log_outline import Membership
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterSet
from barnabas.protocol.data.control_records import KRaftVersionRecord
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import iter_headers

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.common.disk.files import FileSystem
    from barnabas.config.config import Config
    from barnabas.controller.metadata.metadata_directory import MetadataDirectory

FORMATTED: Final = SnapshotId(0, 0).file_name
"""The snapshot of `format --standalone` and `--initial-controllers`: it has the first voters, under kraft.version 1."""


class OpenedLog(NamedTuple):
    """A log, and what is called after each group of appends; `raft` is None for a controller that is alone."""

    log: LocalClient | RaftDriver
    flush: Callable[[], object]
    raft: RaftDriver | None


def names_several(config: Config) -> bool:
    """Return whether the configuration names several controllers (rule 1)."""
    voters = config.controller_voters()
    # Why not the addresses: the only voter may have another one among the bootstrap servers.
    return len(voters) > 1 if voters else len(config.controller_bootstrap()) > 1


def open_log(config: Config, directory: MetadataDirectory, connect: Connect, clock: Clock, fs: FileSystem) -> OpenedLog:
    """Open the log in a directory; `connect` connects to other controllers. Raises DirectoryError."""
    node_id = int(config.node_id)
    _remove_temporary(fs, f"{directory.path}/{TOPIC_PARTITION}")
    try:
        is_dynamic = _has_voters_in_log(directory, config, clock, fs)
        if not is_dynamic:
            _check_voters(config, directory.path, fs)
        if not is_dynamic and not names_several(config):
            QuorumStateFile(fs, f"{directory.path}/{TOPIC_PARTITION}").leave_quorum()
            local = LocalClient(node_id, MetadataLog(directory.path, config, clock, fs))
            return OpenedLog(local, local.flush, None)
    except QuorumStateError as error:
        raise DirectoryError(str(error)) from error
    listeners = own_listeners(config)
    settings = raft_config(config, directory.cluster_id, listeners)
    log = RaftLog(directory.path, config, clock, fs, configured_voters(config))
    key = ReplicaKey(node_id, directory.directory_id)
    _check_votes(log, key)
    raft = RaftDriver(settings, key, log, Senders(node_id, connect), clock)
    return OpenedLog(raft, _nothing, raft)


def _remove_temporary(fs: FileSystem, path: str) -> None:
    """Remove what a kill has left of files that were being written; a snapshot can be large."""
    names = [entry.name for entry in fs.listdir(path)] if fs.exists(path) else []
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX):
            fs.unlink(f"{path}/{name}")


def own_listeners(config: Config) -> tuple[Listener, ...]:
    """Return where other controllers reach this one."""
    found = config.controller_endpoint()
    if found is None:
        return ()
    name, host, port = found
    # Why not empty: it would get into the voter set by the first election, and nobody could ask that voter again.
    return (Listener(name, host or own_host_name(), port),)


def _has_voters_in_log(directory: MetadataDirectory, config: Config, clock: Clock, fs: FileSystem) -> bool:
    """Return whether the directory belongs to a quorum that has its voters in the log, or none yet (rule 2)."""
    path = f"{directory.path}/{TOPIC_PARTITION}"
    files = {entry.name for entry in fs.listdir(path)} if fs.exists(path) else set()
    if FORMATTED in files:
        return True
    state = QuorumStateFile(fs, path)
    if QUORUM_STATE_FILE not in files:
        # Why the file: a directory is formatted without voters only if the configuration has none either. One that
        # was not formatted may have the file, too: somebody has put the first records there.
        # Why the sizes: a first start creates the log before quorum-state.
        has_records = any(
            name.endswith(CHECKPOINT_SUFFIX) or (name.endswith(LOG_SUFFIX) and fs.size(f"{path}/{name}"))
            for name in files
        )
        if has_records:
            return _names_voters(fs, path, files)
        if config.controller_voters() or not directory.is_formatted:
            return False
        return fs.exists(f"{directory.path}/{BOOTSTRAP_FILE}")
    if state.version() > 0 or not state.voter_ids():
        return True
    if set(state.voter_ids()) == _known_voters(config):
        return False
    # Why only now: this reads the whole log. The file is as old as the last election, the upgrade may be newer.
    log = RaftLog(directory.path, config, clock, fs, Membership(-1, 0, VoterSet()))
    log.close()
    return log.outline.membership.kraft_version > 0


def _names_voters(fs: FileSystem, path: str, files: Iterable[str]) -> bool:
    """Return whether a snapshot, or a control record of the log, says kraft.version 1 (rule 4).

    Why not by opening the log: a controller that is alone comes here at each start, and would read it twice.
    """
    found = SnapshotFiles(fs, path, Membership(-1, 0, VoterSet())).newest()
    if found is not None and found[1].kraft_version > 0:
        return True
    for name in sorted(name for name in files if name.endswith(LOG_SUFFIX)):
        data = memoryview(fs.read_bytes(f"{path}/{name}"))
        with suppress(MalformedMessageError):  # a torn tail; damage is reported when the log is opened
            for position, header in iter_headers(data):
                batch = data[position : position + header.size_in_bytes]
                for record in control_records(batch) if header.is_control else ():
                    if isinstance(record, KRaftVersionRecord) and record.kraft_version > 0:
                        return True
    return False


def _check_votes(log: RaftLog, key: ReplicaKey) -> None:
    """Refuse a log without its quorum-state (rule 4); raises DirectoryError."""
    voters, membership = log.outline.voters, log.outline.membership
    if membership.kraft_version < 1 or not log.outline.end_offset or log.election() is not None:
        return
    if len(voters) == 1 and voters.is_voter(key):
        return
    log.close()
    raise DirectoryError(
        f"{log.path} has no {QUORUM_STATE_FILE}, so the votes of this controller are lost, and it could vote twice: "
        "restore the file from a copy that is not older than the last election, or give the controller a new directory "
        "(barnabas controller format --no-initial-controllers), remove the old one from the voters, and add the new one"
    )


def _known_voters(config: Config) -> set[int]:
    return set(config.controller_voters()) if names_several(config) else {int(config.node_id)}


def _check_voters(config: Config, directory: str, fs: FileSystem) -> None:
    """Refuse the log of a quorum of other static voters: a majority of the new ones may lack what was committed.

    As QuorumState.initialize (Kafka) does. A controller that was alone has no quorum-state.
    """
    path = f"{directory}/{TOPIC_PARTITION}"
    before, now = set(QuorumStateFile(fs, path).voter_ids()), _known_voters(config)
    if before and now and before != now:
        raise DirectoryError(
            f"{path} belongs to a quorum of the controllers {_named(before)}, but the configuration names "
            f"{_named(now)}: static voters cannot be changed. Name all of the former in controller.quorum.voters"
        )


def _named(ids: set[int]) -> str:
    return ", ".join(map(str, sorted(ids)))


def _nothing() -> None:
    """A quorum commits by itself."""
