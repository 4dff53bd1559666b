"""Decides how to rebuild a lost metadata log from the reports of brokers (`barnabas controller recover`).

Rules
1. Nothing is invented. The metadata is that of the newest reported image. A fact that cannot be known is a
   RecoveryError or a note.
2. No acknowledged record is lost. While a broker leads a partition, its in-sync replicas have all of them. Without a
   leader, nothing is appended. Then the replicas with the highest leader epoch, and in it the highest end offset, have
   all of them. This needs the logs of every replica.
3. The new log has no brokers, and partitions have no leaders. Brokers register again, and in-sync replicas are elected.
   Leader and partition epochs continue above all known ones.
4. The log begins above every offset that any broker has seen, and in a higher epoch, so that its pushes are newer.
   Producer ids continue far above the known ones, since the last allocated blocks may be unknown.
5. Secrets (passwords in dynamic configs; SCRAM credentials, unless the brokers authenticate this command) are not in
   reports, and must be set again. A reassignment in progress is not resumed: all its replicas stay.

Threads: none; pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.common.recovery_report import NOTHING, PRODUCER_ID_MAX, LogState, PartitionState, Report, ReportedImage
from barnabas.controller.decisions.producer_ids import BLOCK_SIZE
from barnabas.controller.image import NO_LEADER, TOPIC_RESOURCE, UNASSIGNED_DIRECTORY, Image
from barnabas.controller.image_editor import ImageEditor
from barnabas.controller.raft.voter_set import KRAFT_VERSION_FEATURE
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    decode_record,
)

OFFSET_MARGIN: Final = 1_000_000  # records that only a broker without a report may have seen
EPOCH_MARGIN: Final = 10
PRODUCER_ID_MARGIN: Final = 1 << 32


class RecoveryError(Exception):
    """The log cannot be rebuilt; the message is one line for the operator."""


@dataclass(slots=True)
class Rebuilt:
    """The first image, the epoch of its snapshot, and notes for the operator."""

    cluster_id: str
    image: Image
    epoch: int
    kraft_version: int  # of the lost log; 0 also if no broker knows it
    notes: list[str] = field(default_factory=list)


def rebuild(reports: Sequence[Report]) -> Rebuilt:
    """Return the first image of the new log; raises RecoveryError."""
    _check_brokers(reports)
    reported = _newest_image(reports)
    known = max(report.metadata_offset for report in reports)
    is_outdated = reported.offset < known
    notes = []
    if is_outdated:
        notes.append(
            f"the newest metadata is that of offset {reported.offset}, but brokers obeyed up to {known}: a change of "
            "configs, ACLs, users, tokens or quotas just before may be missing"
        )
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in reported.features.items()
        if name != KRAFT_VERSION_FEATURE  # it is no record of the metadata (see Rebuilt.kraft_version)
    ]
    topics = {name: topic_id for name, (topic_id, _) in reported.topics.items()}
    topics.update(_topics_of_logs(reports, reported, is_outdated=is_outdated, notes=notes))
    for name, topic_id in sorted(topics.items()):
        records += _topic_records(reports, name, topic_id, notes, is_outdated=is_outdated)
    records += _config_records(reported, topics, notes)
    records += _security_records(reported, notes)
    records.append(_producer_ids(reports))
    editor = ImageEditor(Image())
    editor.apply_all(records, 0)
    offset = max(known, *(report.broker_epoch for report in reports), reported.offset, 0) + OFFSET_MARGIN
    epoch = max(report.controller_epoch for report in reports)
    image = editor.image(offset)
    image.invariants()
    kraft_version = max(r.image.features.get(KRAFT_VERSION_FEATURE, 0) for r in reports if r.image is not None)
    return Rebuilt(reports[0].cluster_id, image, max(epoch, 0) + EPOCH_MARGIN, kraft_version, notes)


def _producer_ids(reports: Sequence[Report]) -> ProducerIdsRecord:
    """Return the record after which new producer ids are far above all known ones (rule 4)."""
    highest = max(report.highest_producer_id for report in reports)
    if highest >= PRODUCER_ID_MAX:
        raise RecoveryError(f"a broker reports producer id {highest}: no cluster allocates so many")
    next_id = (max(highest, 0) + PRODUCER_ID_MARGIN) // BLOCK_SIZE * BLOCK_SIZE
    return ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=next_id)


def _check_brokers(reports: Sequence[Report]) -> None:
    by_id: dict[int, Report] = {}
    for report in reports:
        if report.broker_id in by_id:
            raise RecoveryError(f"two of the addresses belong to broker {report.broker_id}")
        by_id[report.broker_id] = report
    clusters = {report.cluster_id for report in reports}
    if len(clusters) > 1:
        raise RecoveryError(f"the brokers belong to different clusters: {', '.join(sorted(clusters))}")


def _newest_image(reports: Sequence[Report]) -> ReportedImage:
    images = [(r.image.offset, r.image) for r in reports if r.image is not None]
    if not images:
        raise RecoveryError("none of these brokers has any metadata, neither in memory nor in a copy on its disks")
    return max(images, key=lambda item: item[0])[1]


def _topics_of_logs(
    reports: Sequence[Report], reported: ReportedImage, *, is_outdated: bool, notes: list[str]
) -> dict[str, str]:
    """Return (name -> id) the topics that exist only as logs, if they were created after an outdated image.

    If that image is not outdated, such topics were deleted. Their logs are left alone, with a note.
    """
    found: dict[str, set[str]] = {}
    for report in reports:
        for log in report.logs:
            if log.topic_id is not None and reported.topics.get(log.topic, ("",))[0] != log.topic_id:
                found.setdefault(log.topic, set()).add(log.topic_id)
    topics: dict[str, str] = {}
    for name, ids in sorted(found.items()):
        if not is_outdated:
            notes.append(f"there are logs of a topic {name} that is not in the metadata: they are left alone")
        elif len(ids) > 1 or name in reported.topics:
            raise RecoveryError(f"brokers disagree about the id of topic {name}: {', '.join(sorted(ids))}")
        else:
            notes.append(f"topic {name} is known only by its logs: its configs, if it had any, must be set again")
            topics[name] = next(iter(ids))
    return topics


def _topic_records(
    reports: Sequence[Report], name: str, topic_id: str, notes: list[str], *, is_outdated: bool
) -> Iterator[MetadataRecord]:
    """Yield the records of one topic."""
    id_ = bytes.fromhex(topic_id)
    states = {state.partition: state for state in _states(reports, name, topic_id)}
    logs: dict[int, dict[int, LogState]] = {}
    for report in reports:
        for log in report.logs:
            if log.topic == name and log.topic_id in (topic_id, None):
                logs.setdefault(log.partition, {})[report.broker_id] = log
    if is_outdated:
        _add_replicas_of_logs(states, logs, topic_id)
    count = max((*states, *logs), default=-1) + 1
    yield TopicRecord(name=name, topic_id=id_)
    for index in range(count):
        yield _partition_record(reports, f"{name}-{index}", id_, index, states.get(index), logs.get(index, {}), notes)


def _add_replicas_of_logs(
    states: dict[int, PartitionState], logs: dict[int, dict[int, LogState]], topic_id: str
) -> None:
    """Add every broker with a log to the replicas: a reassignment after the image may have moved the records."""
    for index, state in states.items():
        holders = [id_ for id_, log in logs.get(index, {}).items() if log.topic_id == topic_id]
        others = sorted(set(holders) - set(state.replicas))
        states[index] = state._replace(replicas=[*state.replicas, *others])


def _states(reports: Sequence[Report], name: str, topic_id: str) -> list[PartitionState]:
    """Return the partition states of all reported images, the newest of each partition last."""
    states = [
        state
        for report in reports
        if report.image is not None and report.image.topics.get(name, ("",))[0] == topic_id
        for state in report.image.topics[name][1]
    ]
    return sorted(states, key=lambda state: (state.leader_epoch, state.partition_epoch))


def _partition_record(
    reports: Sequence[Report],
    name: str,
    topic_id: bytes,
    index: int,
    state: PartitionState | None,
    logs: dict[int, LogState],
    notes: list[str],
) -> PartitionRecord:
    replicas = tuple(state.replicas) if state is not None else tuple(sorted(logs))
    _check_replicas(reports, name, replicas)
    logs = {replica: logs[replica] for replica in replicas if replica in logs}
    isr = _in_sync(replicas, logs)
    if not isr:
        notes.append(f"no replica of {name} has a log: it begins empty")
        isr = tuple(state.isr) if state is not None and state.isr else replicas
    elif state is not None and state.isr and not set(state.isr) & logs.keys():
        notes.append(f"no replica of {name} that was in sync has its log: the other logs may lack records")
    epochs = [log.epoch for log in logs.values()] + [log.leads_epoch for log in logs.values()]
    partition_epochs = [log.partition_epoch for log in logs.values()]
    if state is not None:
        epochs.append(state.leader_epoch)
        partition_epochs.append(state.partition_epoch)
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(isr),
        removing_replicas=[],
        adding_replicas=[],
        leader=NO_LEADER,
        leader_epoch=max(epochs, default=NOTHING) + 1,
        partition_epoch=max(partition_epochs, default=NOTHING) + 1,
        directories=[UNASSIGNED_DIRECTORY] * len(replicas),
    )


def _check_replicas(reports: Sequence[Report], name: str, replicas: Sequence[int]) -> None:
    """Raise RecoveryError unless the partition has replicas, and there is a report of each."""
    reported = {report.broker_id for report in reports}
    missing = [replica for replica in replicas if replica not in reported]
    if missing:
        raise RecoveryError(
            f"broker {missing[0]} holds a replica of {name} and sent no report: start it and add its address"
        )
    if not replicas:
        raise RecoveryError(f"no broker knows partition {name}, although the topic has later partitions")


def _in_sync(replicas: Sequence[int], logs: dict[int, LogState]) -> tuple[int, ...]:
    """Return the replicas that have all acknowledged records (rule 2)."""
    if not logs:
        return ()
    newest = max(log.epoch for log in logs.values())
    leading = [log for log in logs.values() if log.leads_epoch >= max(newest, 0)]
    if leading:
        isr = max(leading, key=lambda log: log.leads_epoch).isr
        return tuple(replica for replica in replicas if replica in isr)
    best = max((log.epoch, log.end) for log in logs.values())
    return tuple(
        replica for replica in replicas if replica in logs and (logs[replica].epoch, logs[replica].end) == best
    )


def _security_records(reported: ReportedImage, notes: list[str]) -> list[MetadataRecord]:
    """Return the records of ACLs, SCRAM credentials, tokens and quotas; raises RecoveryError."""
    notes += [f"the SCRAM credentials of {name} are secret: set them again" for name in reported.withheld]
    try:
        return [decode_record(bytes.fromhex(text)) for text in reported.security]
    except (ValueError, MalformedMessageError) as error:
        raise RecoveryError(f"a broker reports security metadata that cannot be read: {error}") from error


def _config_records(reported: ReportedImage, topics: dict[str, str], notes: list[str]) -> Iterator[ConfigRecord]:
    for config in reported.configs:
        if config.resource_type == TOPIC_RESOURCE and config.resource_name not in topics:
            continue
        if config.value is None:
            notes.append(f"{config.name} of {config.resource_name or 'all brokers'} is secret: set it again")
            continue
        yield ConfigRecord(
            resource_type=config.resource_type,
            resource_name=config.resource_name,
            name=config.name,
            value=config.value,
        )
