"""RecoveryReporter: this broker's report for `barnabas controller recover`, and the metadata copy behind it.

KRaft brokers have the controller's log. Ours receive the resulting state by pushes. Each broker keeps a copy of that
state on disk. So topics, configs, ACLs and users survive the loss of the controller, even if every broker restarts
before the loss is noticed.

Rules
1. Only a complete image is written, and never an older one over a newer one.
2. The copy is written after a change, at most every `COPY_MS`, and at the stop. So it may be that old. The logs and the
   push state (push_state.py) are newer, and the report has them too.
3. A report names every log of this broker. So there is no report while a log directory is offline. Its logs may have
   acknowledged records that no other replica has, and recovery would choose a replica that lacks them.
4. With a SCRAM credential, passwords can be guessed, and a broker can be impersonated. So a report to a requester that
   did not authenticate only names the users.

Format: `metadata-copy-checkpoint` in every online log directory: a report without logs (common/recovery_report.py).

Threads: the scheduler writes copies; a handler builds reports; `_lock` serializes them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.broker.metadata.push_state import PushState
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.broker.storage.directories.names import METADATA_COPY_FILE
from barnabas.common.recovery_report import (
    NOTHING,
    PRODUCER_ID_MAX,
    ConfigValue,
    LogState,
    PartitionState,
    Report,
    ReportedImage,
    ReportError,
    decode_report,
    encode_report,
)
from barnabas.config.listeners import SSL_STORE_KEYS, base_name
from barnabas.config.secrets.sensitive import is_sensitive
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.metadata_records import UserScramCredentialRecord, decode_record, encode_record
from barnabas.security.image import FALSE_SALTS

if TYPE_CHECKING:
    from barnabas.broker.channels.producer_ids import ProducerIds
    from barnabas.broker.metadata.metadata_cache import MetadataCache, MetadataSnapshot
    from barnabas.broker.metadata.security_cache import SecurityCache
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.settings.dynamic_config import DynamicConfig
    from barnabas.broker.storage.log.log import Log
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.common.disk.files import FileSystem
    from barnabas.security.image import SecurityImage

log = logging.getLogger("barnabas.recovery")

COPY_MS: Final = 5_000


class RecoveryReporter:
    """See the module."""

    def __init__(
        self,
        *,
        broker_id: int,
        cluster_id: str,
        broker_epoch: Callable[[], int],
        fs: FileSystem,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        dynamic_config: DynamicConfig,
        producer_ids: ProducerIds,
        push_state: PushState,
        security: SecurityCache,
    ) -> None:
        # Fixed before start.
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._broker_epoch = broker_epoch
        self._fs = fs
        self._log_manager = log_manager
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._dynamic_config = dynamic_config
        self._producer_ids = producer_ids
        self._push_state = push_state
        self._security = security
        self._lock = threading.Lock()
        self._written_snapshot: MetadataSnapshot | None = None  # guarded by: _lock; the source of the last copy
        self._written_security: SecurityImage | None = None  # guarded by: _lock; likewise
        self._written_rest: tuple[int, int, int] | None = None  # guarded by: _lock; the rest of that source
        # _copied is guarded by: _lock; the file of the copy below, until it is outdated
        copy, self._copied = newest_copy(fs, log_manager, cluster_id)
        image = None if copy is None else copy.image
        # guarded by: _lock; the newest copy of an earlier process. Why without its image: that is large, seldom needed.
        self._copy = None if copy is None else replace(copy, image=None)
        if image is not None:
            try:
                security.remember([decode_record(bytes.fromhex(text)) for text in image.security])
            except (ValueError, MalformedMessageError) as error:  # of a newer release, say; pushes bring all of them
                log.warning("the users of the metadata copy are not used: %s", error)

    def write_copy(self) -> None:
        """Write the image to every online log directory, if it has changed."""
        with self._lock:
            snapshot, security = self._metadata_cache.snapshot, self._security.image
            rest = (self._dynamic_config.version, self._producer_ids.highest, self._metadata_cache.image_offset)
            # Why "is": building or comparing an image of many partitions takes long.
            is_known = (
                snapshot is self._written_snapshot and security is self._written_security and rest == self._written_rest
            )
            image = None if is_known else self._image()
            if image is None:
                return
            data = encode_report(self._report(image))
            for directory in self._log_manager.online_directories():
                try:
                    self._fs.atomic_write(f"{directory.path}/{METADATA_COPY_FILE}", data)
                except OSError as error:  # if the directory has failed, its logs will notice
                    log.warning("cannot write %s/%s: %s", directory.path, METADATA_COPY_FILE, error)
            self._written_snapshot, self._written_security, self._written_rest = snapshot, security, rest
            self._copied = None  # this process has an image of its own from now on

    def report(self, *, with_credentials: bool = False) -> Report:
        """Return everything that this broker knows; raises ApiError(KAFKA_STORAGE_ERROR) by rule 3.

        Before the first push, the image is that of the copy. `with_credentials` adds the SCRAM credentials (rule 4).
        """
        offline = [directory.path for directory in self._log_manager.directories if directory.is_offline]
        if offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {offline[0]} is offline")
        with self._lock:
            report = self._report(self._image())
            if report.image is None and self._copied is not None:
                report.image = decode_report(self._copied).image
        if report.image is not None and not with_credentials:
            report.image = _without_credentials(report.image)
        report.logs = list(self._logs())
        for known in self._log_manager.all_logs():
            ids = [entry.producer_id for entry in known.active_producers() if entry.producer_id < PRODUCER_ID_MAX]
            report.highest_producer_id = max(report.highest_producer_id, *ids, NOTHING)
        return report

    def _report(self, image: ReportedImage | None) -> Report:
        (offset, epoch), producer_id = self._push_state.highest, NOTHING
        if self._copy is not None:
            epoch = max(epoch, self._copy.controller_epoch)
            offset = max(offset, self._copy.metadata_offset)
            producer_id = self._copy.highest_producer_id
        return Report(
            broker_id=self._broker_id,
            cluster_id=self._cluster_id,
            controller_epoch=epoch,
            metadata_offset=max(offset, self._metadata_cache.image_offset),
            broker_epoch=self._broker_epoch(),
            highest_producer_id=max(producer_id, self._producer_ids.highest),
            image=image,
        )

    def _image(self) -> ReportedImage | None:
        """Return the metadata that this process has received; None before it is complete."""
        offset, snapshot = self._metadata_cache.image_offset, self._metadata_cache.snapshot
        if offset == NOTHING:
            return None
        topics = {
            topic.name: (
                topic.id.hex(),
                [
                    PartitionState(p.partition, p.leader_epoch, p.partition_epoch, list(p.replicas), list(p.isr))
                    for p in topic.partitions.values()
                ],
            )
            for topic in snapshot.topics.values()
        }
        features = dict(self._metadata_cache.finalized_features.levels)
        security = [encode_record(record).hex() for record in self._security.image.records()]
        return ReportedImage(offset, features, topics, list(self._configs()), security)

    def _configs(self) -> Iterator[ConfigValue]:
        for resource, texts in self._dynamic_config.all_overrides().items():
            for name, text in texts.items():
                is_secret = is_sensitive(resource.type, name)
                yield ConfigValue(resource.type, resource.name, name, None if is_secret else text)

    def _logs(self) -> Iterator[LogState]:
        for known in self._log_manager.all_logs():
            yield self._log_state(known)

    def _log_state(self, known: Log) -> LogState:
        tp = known.topic_partition
        partition = self._replica_manager.find(tp)
        role = None if partition is None else partition.role
        topic_id = None if known.topic_id is None else known.topic_id.hex()
        # Why the role is read before the end offset: later records are acknowledged only by in-sync replicas.
        state = LogState(tp.topic, tp.partition, topic_id, known.latest_epoch, known.log_end_offset)
        if role is None or not role.is_leader:
            return state
        return state._replace(leads_epoch=role.leader_epoch, partition_epoch=role.partition_epoch, isr=sorted(role.isr))


def newest_copy(fs: FileSystem, log_manager: LogManager, cluster_id: str) -> tuple[Report | None, bytes | None]:
    """Return the newest copy of this cluster and its file, if there is any; a damaged one is skipped."""
    found: list[tuple[Report, bytes]] = []
    for directory in log_manager.online_directories():
        path = f"{directory.path}/{METADATA_COPY_FILE}"
        try:
            if fs.exists(path):
                data = fs.read_bytes(path)
                found.append((decode_report(data), data))
        except (OSError, ReportError) as error:
            log.warning("%s cannot be used: %s", path, error)
    ours = [copy for copy in found if copy[0].cluster_id == cluster_id and copy[0].image is not None]
    return max(ours, key=lambda copy: copy[0].metadata_offset, default=(None, None))


def tls_set_before(fs: FileSystem, log_manager: LogManager, cluster_id: str | None, broker_id: int) -> dict[str, str]:
    """Return what of TLS was set at run time, as the metadata copy has it: all but passwords and keys.

    A broker's own value goes before that of all brokers.
    """
    copy = None if cluster_id is None else newest_copy(fs, log_manager, cluster_id)[0]
    if copy is None or copy.image is None:
        return {}
    return {
        config.name: config.value
        for owner in ("", str(broker_id))
        for config in copy.image.configs
        if config.resource_type == ResourceType.BROKER
        and config.resource_name == owner
        and config.value is not None
        and base_name(config.name) in SSL_STORE_KEYS
    }


def _without_credentials(image: ReportedImage) -> ReportedImage:
    """Return an image that names the users in place of their SCRAM credentials.

    A record of a newer release may be a credential too. It becomes an empty text, which the recovery refuses to read.
    """
    security, users = [], set()
    for text in image.security:
        try:
            record = decode_record(bytes.fromhex(text))
        except (ValueError, MalformedMessageError):
            security.append("")
            continue
        if isinstance(record, UserScramCredentialRecord):
            users.add(record.name)
        else:
            security.append(text)
    users.discard(FALSE_SALTS.user)  # it is no user; the next active controller makes another secret
    return replace(image, security=security, withheld=sorted(users))
