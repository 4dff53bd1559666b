"""`python -P -m barnabas.controller.recover FILE --from-brokers HOST:PORT,...`: rebuilds a lost metadata log.

The command fetches a report from each broker (recovery_report.py) and rebuilds the log from the reports (recovery.py).
It writes the log as a snapshot into the directory that FILE names. The controller must be stopped. The brokers must
run; they wait for the controller.

Rules
1. A directory whose log holds topics or brokers is not touched. An empty log, left by an empty start, is moved aside.
2. The identity of the directory is written before the log. After a crash in between, the controller would start empty
   and end when the first broker registers. The command can be repeated.
3. If the voters were in the lost log (a broker knows kraft.version 1, or the configuration names several controllers,
   but no static voters), this controller is the only voter of the new one; the others are added while it runs.

An error of the operator is one line on stderr and exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.broker.storage.directories.checkpoints import write_meta_properties
from barnabas.broker.storage.directories.names import RECOVERY_POINT_FILE
from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.client.security import ClientSecurity, security_of_brokers
from barnabas.common import logs
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.disk.files import FileSystem, OsFileSystem
from barnabas.common.ids import random_uuid, uuid_to_string
from barnabas.common.processes.process import EXIT_USER_ERROR
from barnabas.common.recovery_report import Report, ReportError, decode_report
from barnabas.config.command_line import key_value
from barnabas.config.config import CONTROLLER, Config
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import parse_addresses
from barnabas.controller.metadata.durable_end import TOPIC_PARTITION
from barnabas.controller.metadata.metadata_directory import LOCK_FILE, META_PROPERTIES_FILE, DirectoryError
from barnabas.controller.metadata.metadata_log import MetadataLog
from barnabas.controller.metadata.opened_log import names_several, own_listeners
from barnabas.controller.metadata.recovery import Rebuilt, RecoveryError, rebuild
from barnabas.controller.metadata.snapshot import SnapshotId, image_records, write_snapshot
from barnabas.controller.raft.batches import control_record
from barnabas.controller.raft.raft_config import KRAFT_VERSIONS
from barnabas.controller.raft.voter_set import ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.data.control_records import KRaftVersionRecord
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k59_fetch_snapshot as wire
from barnabas.protocol.records.batch import SimpleRecord
from barnabas.security.tls.endpoints import TlsEndpoints

TIMEOUT_MS: Final = 30_000
ASIDE: Final = ".before-recovery-"


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Rebuild the log; return the exit code."""
    environment = os.environ if environment is None else environment
    parser = argparse.ArgumentParser(prog="barnabas controller recover")
    parser.add_argument("file")
    parser.add_argument("--from-brokers", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args(argv)
    try:
        logs.configure()
        overrides = dict(map(key_value, arguments.override))
        config = Config.load(arguments.file, role=CONTROLLER, overrides=overrides, environment=environment)
        if config.is_combined:
            raise ConfigError(
                f"{arguments.file} has both roles, so its broker cannot be asked without its controller: see "
                "docs/operations.md, A controller that lost its disk"
            )
        addresses = parse_addresses("--from-brokers", [a for a in arguments.from_brokers.split(",") if a])
        clock = SystemClock()
        tls = TlsEndpoints(config.originals, clock.wall_ms)
        security = security_of_brokers(tls, config, clock)
        reports = [ask(host, port, security) for host, port in addresses]
        if not reports:
            raise RecoveryError("--from-brokers names no broker")
        rebuilt = rebuild(reports)
        write(config, rebuilt, clock, OsFileSystem())
    except (ConfigError, RecoveryError, DirectoryError, ApiError, OSError) as error:
        print(f"controller: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    for note in rebuilt.notes:
        print(f"note: {note}")
    partitions = sum(len(topic.partitions) for topic in rebuilt.image.topics.values())
    print(
        f"rebuilt {config.metadata_log_dir} for cluster {rebuilt.cluster_id} from {len(reports)} brokers: "
        f"{len(rebuilt.image.topics)} topics, {partitions} partitions. Start the controller now"
    )
    if had_voters(config, rebuilt):
        print(
            "note: it is the only voter. Format the directories of other controllers with --no-initial-controllers "
            f"and --cluster-id {rebuilt.cluster_id}, start them, and add them with: barnabas quorum add FILE"
        )
    return 0


def ask(host: str, port: int, security: ClientSecurity | None = None) -> Report:
    """Fetch the report of the broker at an address; raises RecoveryError.

    `security` is that of the listener between brokers, by the controller's own config.
    """
    where = f"the broker at {host}:{port}"
    partition = wire.RequestPartitionSnapshot(partition=TOPIC_PARTITION.partition, current_leader_epoch=-1)
    topic = wire.RequestTopicSnapshot(name=TOPIC_PARTITION.topic, partitions=[partition])
    with NodeConnection(host, port, timeout_ms=TIMEOUT_MS, security=security) as node:
        try:
            response = node.send(wire.FetchSnapshotRequest(topics=[topic]), 0)
        except NodeConnectionError as error:
            raise RecoveryError(f"{where} does not answer: {error}") from error
    snapshots = [p for t in response.topics for p in t.partitions]
    code = response.error_code or (snapshots[0].error_code if snapshots else ErrorCode.UNKNOWN_SERVER_ERROR)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise RecoveryError(
            f"{host}:{port} is a listener for clients: name the port of the broker's inter.broker.listener.name"
        )
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        raise RecoveryError(
            f"{where} cannot report a log directory that is offline: repair the directory and restart the broker. If "
            "it is lost for good, remove it from log.dirs first"
        )
    if code:
        raise RecoveryError(f"{where} refuses: {ErrorCode.of(code).name}")
    try:
        return decode_report(bytes(snapshots[0].unaligned_records))
    except ReportError as error:
        raise RecoveryError(f"{where} sent a report that cannot be read: {error}") from error


def write(config: Config, rebuilt: Rebuilt, clock: Clock, fs: FileSystem) -> None:
    """Write the log into the controller's directory; raises DirectoryError if that is in use or not empty."""
    directory = str(config.metadata_log_dir)
    fs.mkdir(directory)
    try:
        lock = fs.lock(f"{directory}/{LOCK_FILE}")
    except BlockingIOError:
        raise DirectoryError(f"{directory} is in use: stop the controller first") from None
    try:
        path, key = f"{directory}/{TOPIC_PARTITION}", ReplicaKey(int(config.node_id), random_uuid())
        if fs.exists(path):
            _move_aside(config, path, clock, fs)
        write_meta_properties(
            fs,
            f"{directory}/{META_PROPERTIES_FILE}",
            cluster_id=rebuilt.cluster_id,
            node_id=key.id,
            directory_id=uuid_to_string(key.directory_id),
        )
        fs.mkdir(path)
        fs.fsync_dir(directory)
        snapshot, now_ms = SnapshotId(rebuilt.image.offset + 1, rebuilt.epoch), clock.wall_ms()
        control: list[SimpleRecord] = []
        if had_voters(config, rebuilt):
            voters = VoterSet([VoterNode(key, own_listeners(config), KRAFT_VERSIONS)])
            version = KRaftVersionRecord(version=0, kraft_version=KRAFT_VERSIONS[1])
            control = [control_record(record, now_ms) for record in (version, voters.to_record())]
        write_snapshot(fs, path, snapshot, image_records(rebuilt.image), now_ms, control)
    finally:
        lock.release()


def had_voters(config: Config, rebuilt: Rebuilt) -> bool:
    """Return whether the voters were in the lost log, and not in the configuration (rule 3)."""
    return rebuilt.kraft_version > 0 or (names_several(config) and not config.controller_voters())


def _move_aside(config: Config, path: str, clock: Clock, fs: FileSystem) -> None:
    """Move an empty log aside; raises DirectoryError for a log with content (rule 1)."""
    directory = os.path.dirname(path)
    if fs.listdir(path):
        old = MetadataLog(directory, config, clock, fs)
        try:
            image = old.image()
        finally:
            old.close()
        if image.topics or image.brokers:
            raise DirectoryError(
                f"{path} holds the metadata of {len(image.topics)} topics and {len(image.brokers)} brokers: start the "
                "controller with it, or move it away first"
            )
    durable = f"{directory}/{RECOVERY_POINT_FILE}"
    if fs.exists(durable):
        fs.rename(durable, f"{path}/{RECOVERY_POINT_FILE}")  # Why first: without its log, the directory looks damaged
    fs.rename(path, f"{path}{ASIDE}{clock.wall_ms()}")


if __name__ == "__main__":
    sys.exit(main())
