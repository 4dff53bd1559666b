"""`python -P -m barnabas.controller.metadata.format FILE ...`: formats the directory of a controller, as kafka-storage.

Rules
1. `--standalone`: this controller is the first and only voter. `--initial-controllers`: these controllers are. The
   voters are in a snapshot at offset 0, under kraft.version 1.
2. `--no-initial-controllers`: the controller follows, until it is added to the voters. Without any of the three, the
   voters are those of `controller.quorum.voters`.
3. `meta.properties` is written last. A directory that was not formatted to the end can be formatted again, and no
   controller starts with it (metadata_directory.py).

An error of the operator is one line on stderr and exit code 1.

Source: Formatter, StorageTool, DynamicVoter (Kafka 4.3); KIP-853.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.broker.storage.directories.checkpoints import write_meta_properties
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.disk.files import FileSystem, OsFileSystem
from barnabas.common.ids import ZERO_UUID, random_uuid, uuid_from_string, uuid_to_string
from barnabas.common.processes.process import EXIT_USER_ERROR
from barnabas.config.command_line import key_value
from barnabas.config.config import CONTROLLER, Config
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import parse_addresses
from barnabas.controller.metadata.bootstrap import FILE as BOOTSTRAP_FILE
from barnabas.controller.metadata.bootstrap import default_records
from barnabas.controller.metadata.durable_end import TOPIC_PARTITION
from barnabas.controller.metadata.metadata_directory import (
    FORMATTING_FILE,
    LOCK_FILE,
    META_PROPERTIES_FILE,
    DirectoryError,
)
from barnabas.controller.metadata.opened_log import FORMATTED, own_listeners
from barnabas.controller.metadata.snapshot import encode_snapshot
from barnabas.controller.raft.batches import control_record
from barnabas.controller.raft.client.settings import controller_listener
from barnabas.controller.raft.raft_config import KRAFT_VERSIONS
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.data.control_records import KRaftVersionRecord

NODE_ID_MAX: Final = (1 << 31) - 1
_VOTER: Final = re.compile(r"(\d+)@(.+:\d+):([A-Za-z0-9_-]{22})")


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Format the directory; return the exit code."""
    environment = os.environ if environment is None else environment
    parser = argparse.ArgumentParser(prog="barnabas controller format")
    parser.add_argument("file")
    parser.add_argument("--cluster-id")
    voters = parser.add_mutually_exclusive_group()
    voters.add_argument("--standalone", action="store_true")
    voters.add_argument("--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY,...")
    voters.add_argument("--no-initial-controllers", action="store_true")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args(argv)
    try:
        overrides = dict(map(key_value, arguments.override))
        config = Config.load(arguments.file, role=CONTROLLER, overrides=overrides, environment=environment)
        is_dynamic = arguments.standalone or arguments.initial_controllers or arguments.no_initial_controllers
        _check(config, is_dynamic=bool(is_dynamic))
        initial = _initial_voters(config, arguments.initial_controllers, is_standalone=arguments.standalone)
        cluster_id = _cluster_id(arguments.cluster_id or environment.get("CLUSTER_ID"), arguments.standalone)
        key = format_directory(config, cluster_id, initial, SystemClock(), OsFileSystem())
    except (ConfigError, DirectoryError, OSError) as error:
        print(f"controller: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    role = f"one of {len(initial)} voters" if initial.is_voter(key) else "no voter yet"
    role = role if is_dynamic else "a voter of controller.quorum.voters"
    print(
        f"formatted {config.metadata_log_dir} for controller {key.id} of cluster {cluster_id}, {role}; "
        f"directory id {uuid_to_string(key.directory_id)}"
    )
    return 0


def _check(config: Config, *, is_dynamic: bool) -> None:
    """Raise ConfigError unless the options fit the configuration, as kafka-storage demands."""
    if is_dynamic and config.controller_voters():
        raise ConfigError(
            "controller.quorum.voters names static voters: remove it, or use none of --standalone, "
            "--initial-controllers and --no-initial-controllers"
        )
    if not is_dynamic and not config.controller_voters():
        raise ConfigError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )


def _cluster_id(given: str | None, is_standalone: bool) -> str:
    """Return the cluster id; only the first controller of a cluster may invent one. Raises ConfigError."""
    if given is None and is_standalone:
        return uuid_to_string(random_uuid())
    if not given:
        raise ConfigError("--cluster-id: name the id of the cluster, which all controllers share")
    return given


def _initial_voters(config: Config, listed: str | None, *, is_standalone: bool) -> VoterSet:
    """Return the first voters; raises ConfigError."""
    node_id = int(config.node_id)
    if is_standalone:
        return VoterSet([VoterNode(ReplicaKey(node_id, random_uuid()), own_listeners(config), KRAFT_VERSIONS)])
    if not listed:
        return VoterSet()
    nodes = [_voter(text.strip(), controller_listener(config)) for text in listed.split(",")]
    ids, directories = {node.key.id for node in nodes}, {node.key.directory_id for node in nodes}
    if min(len(ids), len(directories)) < len(nodes):
        raise ConfigError("--initial-controllers names an id or a directory twice")
    voters = VoterSet(nodes)
    if voters.get(node_id) is None:
        raise ConfigError(
            f"--initial-controllers does not name controller {node_id}: format its directory with "
            "--no-initial-controllers"
        )
    return voters


def _voter(text: str, listener_name: str) -> VoterNode:
    match = _VOTER.fullmatch(text)
    if match is None:
        raise ConfigError(f"--initial-controllers: {text} is not ID@HOST:PORT:DIRECTORY")
    ((host, port),) = parse_addresses("--initial-controllers", (match[2],))
    if int(match[1]) > NODE_ID_MAX:
        raise ConfigError(f"--initial-controllers: {match[1]} is not a node id")
    try:
        directory_id = uuid_from_string(match[3])
    except ValueError as error:
        raise ConfigError(f"--initial-controllers: {match[3]} is not a directory id") from error
    if directory_id == ZERO_UUID:
        raise ConfigError(f"--initial-controllers: {match[3]} is not a directory id")
    return VoterNode(ReplicaKey(int(match[1]), directory_id), (Listener(listener_name, host, port),), KRAFT_VERSIONS)


def format_directory(config: Config, cluster_id: str, initial: VoterSet, clock: Clock, fs: FileSystem) -> ReplicaKey:
    """Format the directory of this controller; return its key. Raises DirectoryError if it is in use or has content."""
    directory, node_id = str(config.metadata_log_dir), int(config.node_id)
    fs.mkdir(directory)
    try:
        lock = fs.lock(f"{directory}/{LOCK_FILE}")
    except BlockingIOError:
        raise DirectoryError(f"{directory} is in use by another process") from None
    try:
        path = f"{directory}/{TOPIC_PARTITION}"
        files = {entry.name for entry in fs.listdir(path)} if fs.exists(path) else set()
        if fs.exists(f"{directory}/{META_PROPERTIES_FILE}") or files - {FORMATTED, f"{FORMATTED}.tmp"}:
            raise DirectoryError(f"{directory} is already formatted")
        voter = initial.get(node_id)
        key = ReplicaKey(node_id, random_uuid()) if voter is None else voter.key
        now_ms = clock.wall_ms()
        fs.atomic_write(f"{directory}/{FORMATTING_FILE}", b"")
        if voter is not None:
            fs.mkdir(path)
            fs.fsync_dir(directory)
            version = KRaftVersionRecord(version=0, kraft_version=KRAFT_VERSIONS[1])
            control = [control_record(record, now_ms) for record in (version, initial.to_record())]
            fs.atomic_write(f"{path}/{FORMATTED}", encode_snapshot(0, (), now_ms, control))
        elif FORMATTED in files:  # of an attempt that named voters
            fs.unlink(f"{path}/{FORMATTED}")
            fs.fsync_dir(path)
        fs.atomic_write(f"{directory}/{BOOTSTRAP_FILE}", encode_snapshot(0, default_records(), now_ms))
        write_meta_properties(
            fs,
            f"{directory}/{META_PROPERTIES_FILE}",
            cluster_id=cluster_id,
            node_id=node_id,
            directory_id=uuid_to_string(key.directory_id),
        )
        fs.unlink(f"{directory}/{FORMATTING_FILE}")
        return key
    finally:
        lock.release()


if __name__ == "__main__":
    sys.exit(main())
