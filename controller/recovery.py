"""Rebuilding a lost metadata log from what brokers report: decisions only (`barnabas controller recover`).

Rules
1. Nothing is invented. The metadata is that of the newest picture; what cannot be known is refused with RecoveryError,
   or told in a note.
2. No acknowledged record is given up. While a broker leads a partition, its in-sync replicas have them all. If nobody
   leads, nobody appends: those replicas have them all whose log has the highest leader epoch and, in it, the highest
   end offset. For that, every replica must have been reported.
3. Nobody leads at first; brokers are not in the log. They register anew, and who is in sync is elected. Leader and
   partition epochs go on above all that were seen.
4. The log begins above every offset that any broker has seen, and in a higher epoch, so that its pushes are new.
   Producer ids go on far above those seen: blocks may have been given out that nobody remembers.
5. What is secret (passwords in dynamic configs) is not in reports, and must be set again. A reassignment that was under
   way is not resumed: all its replicas stay.

Threads: none; pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.common.recovery_report import NOTHING, PRODUCER_ID_MAX, LogState, PartitionState, Picture, Report
from barnabas.controller.image import NO_LEADER, TOPIC_RESOURCE, UNASSIGNED_DIRECTORY, Image, ImageEditor
from barnabas.controller.producer_ids import BLOCK_SIZE
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)

OFFSET_MARGIN: Final = 1_000_000  # of records that a broker may have seen which was not asked
EPOCH_MARGIN: Final = 10
PRODUCER_ID_MARGIN: Final = 1 << 32


class RecoveryError(Exception):
    """Why the log cannot be rebuilt; one line for a person."""


@dataclass(slots=True)
class Rebuilt:
    """The image to begin with, the epoch of the snapshot that holds it, and what a person should know."""

    cluster_id: str
    image: Image
    epoch: int
    notes: list[str] = field(default_factory=list)


def rebuild(reports: Sequence[Report]) -> Rebuilt:
    """Return what the log must begin with; raises RecoveryError."""
    _check_brokers(reports)
    picture = _newest_picture(reports)
    known = max(report.metadata_offset for report in reports)
    notes = []
    if picture.offset < known:
        notes.append(
            f"the newest metadata is that of offset {picture.offset}, but brokers obeyed up to {known}: a change of a "
            "config just before may be missing"
        )
    records: list[Any] = [FeatureLevelRecord(name=n, feature_level=level) for n, level in picture.features.items()]
    topics = {name: topic_id for name, (topic_id, _) in picture.topics.items()}
    is_outdated = picture.offset < known
    topics.update(_topics_of_logs(reports, picture, is_outdated=is_outdated, notes=notes))
    for name, topic_id in sorted(topics.items()):
        records += _topic_records(reports, name, topic_id, notes, is_outdated=is_outdated)
    records += _config_records(picture, topics, notes)
    seen = max(report.highest_producer_id for report in reports)
    if seen >= PRODUCER_ID_MAX:
        raise RecoveryError(f"a broker reports producer id {seen}: no cluster gives out so many")
    next_id = (max(seen, 0) + PRODUCER_ID_MARGIN) // BLOCK_SIZE * BLOCK_SIZE
    records.append(ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=next_id))
    editor = ImageEditor(Image())
    editor.apply_all(records, 0)
    offset = max(known, *(report.broker_epoch for report in reports), picture.offset, 0) + OFFSET_MARGIN
    epoch = max(report.controller_epoch for report in reports)
    image = editor.image(offset)
    image.invariants()
    return Rebuilt(reports[0].cluster_id, image, max(epoch, 0) + EPOCH_MARGIN, notes)


def _check_brokers(reports: Sequence[Report]) -> None:
    by_id: dict[int, Report] = {}
    for report in reports:
        if report.broker_id in by_id:
            raise RecoveryError(f"two of the addresses are those of broker {report.broker_id}")
        by_id[report.broker_id] = report
    clusters = {report.cluster_id for report in reports}
    if len(clusters) > 1:
        raise RecoveryError(f"the brokers belong to different clusters: {', '.join(sorted(clusters))}")


def _newest_picture(reports: Sequence[Report]) -> Picture:
    pictures = [(r.picture.offset, r.picture) for r in reports if r.picture is not None]
    if not pictures:
        raise RecoveryError(
            "none of these brokers remembers any metadata: neither in memory nor in a copy on its disks"
        )
    return max(pictures, key=lambda item: item[0])[1]


def _topics_of_logs(
    reports: Sequence[Report], picture: Picture, *, is_outdated: bool, notes: list[str]
) -> dict[str, str]:
    """Topics that only logs tell of: made after an outdated picture; else they were deleted, and are left to doctor."""
    found: dict[str, set[str]] = {}
    for report in reports:
        for log in report.logs:
            if log.topic_id is not None and picture.topics.get(log.topic, ("",))[0] != log.topic_id:
                found.setdefault(log.topic, set()).add(log.topic_id)
    made: dict[str, str] = {}
    for name, ids in sorted(found.items()):
        if not is_outdated:
            notes.append(f"the metadata does not know a topic {name} of which there are logs: they are left alone")
        elif len(ids) > 1 or name in picture.topics:
            raise RecoveryError(f"brokers disagree about the id of topic {name}: {', '.join(sorted(ids))}")
        else:
            notes.append(f"topic {name} is known by its logs alone: its configs, if it had any, must be set again")
            made[name] = next(iter(ids))
    return made


def _topic_records(
    reports: Sequence[Report], name: str, topic_id: str, notes: list[str], *, is_outdated: bool
) -> Iterator[Any]:
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
    """Whoever has a log is a replica too: a reassignment may have ended after the picture, and moved the records."""
    for index, state in states.items():
        holders = [id_ for id_, log in logs.get(index, {}).items() if log.topic_id == topic_id]
        others = sorted(set(holders) - set(state.replicas))
        states[index] = state._replace(replicas=[*state.replicas, *others])


def _states(reports: Sequence[Report], name: str, topic_id: str) -> list[PartitionState]:
    """What was told of the partitions, the newest of each last."""
    states = [
        state
        for report in reports
        if report.picture is not None and report.picture.topics.get(name, ("",))[0] == topic_id
        for state in report.picture.topics[name][1]
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
    asked = {report.broker_id for report in reports}
    missing = [replica for replica in replicas if replica not in asked]
    if missing:
        raise RecoveryError(
            f"broker {missing[0]} holds a replica of {name} and was not asked: start it and add its address"
        )
    if not replicas:
        raise RecoveryError(f"nobody knows anything of {name}, though there are partitions after it")
    mine = {replica: logs[replica] for replica in replicas if replica in logs}
    isr = _in_sync(replicas, mine)
    if not isr:
        notes.append(f"no replica of {name} has a log: it begins empty")
        isr = tuple(state.isr) if state is not None and state.isr else replicas
    elif state is not None and state.isr and not set(state.isr) & mine.keys():
        notes.append(f"no replica of {name} that was in sync has its log: records may be missing in the others")
    epochs = [log.epoch for log in mine.values()] + [log.leads_epoch for log in mine.values()]
    partition_epochs = [log.partition_epoch for log in mine.values()]
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


def _in_sync(replicas: Sequence[int], logs: dict[int, LogState]) -> tuple[int, ...]:
    """Rule 2."""
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


def _config_records(picture: Picture, topics: dict[str, str], notes: list[str]) -> Iterator[ConfigRecord]:
    for config in picture.configs:
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
