"""One decision about a streams group: what it reads and collects, and the steps it may take. Pure.

A turn reads the group and produces records, timers and what else the group is to remember. The shard carries it out if
the log takes the records; otherwise it has not happened.

Rules
1. A time in the log may be in the future, since clocks are set back. Such a time delays nothing.
2. No task is assigned while the topology does not fit the topics that exist: the target of every member is empty.
3. The metadata hash and the configured topology are computed again only when the cluster's metadata or the topology
   is new, not with every heartbeat.

Source: Kafka's GroupMetadataManager (streams groups, 4.3).

Different from Apache Kafka: rule 1 (a group gets no assignment until the clock has caught up); rule 3 (Kafka looks
again when topics of the group have changed, and at times); a member that joins a full group again is accepted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from barnabas.broker.coordinators.consumer.metadata_watch import metadata_hash
from barnabas.broker.coordinators.consumer.values import NO_TIMESTAMP, MemberExpired, RevocationExpired, Timeout
from barnabas.broker.coordinators.streams_groups import values as v
from barnabas.broker.coordinators.streams_groups.assignment.target import assign_tasks
from barnabas.broker.coordinators.streams_groups.endpoints import endpoints_of
from barnabas.broker.coordinators.streams_groups.environment import Environment
from barnabas.broker.coordinators.streams_groups.group import EPOCH_MAX, StreamsGroup
from barnabas.broker.coordinators.streams_groups.reconcile import Aim, reconcile
from barnabas.broker.coordinators.streams_groups.topology.configured import ConfiguredTopology, configure
from barnabas.broker.coordinators.streams_groups.values import (
    NO_TASKS,
    NO_TOPOLOGY_EPOCH,
    EndpointPartitions,
    Member,
    MemberState,
    Record,
    Status,
    StatusCode,
    Tasks,
    Topology,
)
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")


class Turn:
    """See the module. The steps may raise ApiError."""

    def __init__(
        self, group: StreamsGroup, environment: Environment, *, is_new: bool = False, is_delayed: bool = False
    ) -> None:
        """`is_new`: the group does not exist yet; `is_delayed`: its initial rebalance delay is running."""
        self.group = group
        self.environment = environment
        self.is_new = is_new
        self.is_delayed = is_delayed
        self.records: list[Record] = []
        self.timeouts: list[Timeout] = []
        self.statuses: list[Status] = []
        self.epoch = group.epoch  # the group's, after this turn
        self.is_rebalance = False  # the epoch rises for another reason than a leaving member, as Kafka counts
        self.topology: Topology | None = group.topology  # after this turn
        self.configured: ConfiguredTopology | None = group.configured  # after this turn
        self.metadata_hash = group.metadata_hash
        self.has_compared_topics = False  # with the metadata image, to detect changed topics
        self.has_assigned = False
        self.assignment_delay_ms = 0  # positive: the assignment is to wait for more members
        self.endpoint_epoch = group.endpoint_epoch
        self.shutdown_member_id = group.shutdown_member_id

    # Members

    def check_capacity(self, member_id: str) -> None:
        """Check group.streams.max.size for a member that may be new. Raises ApiError(GROUP_MAX_SIZE_REACHED)."""
        max_size = self.environment.settings.max_size
        if len(self.group.members) >= max_size and member_id not in self.group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {max_size} members.",
            )

    def write_member(self, before: Member, after: Member) -> bool:
        """Write the member if it changed; returns whether it did."""
        if after is before or after == before:
            return False
        self.records.append(v.MemberMetadata(after.member_id, after))
        return True

    def start_session(self, member_id: str) -> None:
        """Start the member's session again."""
        expired = MemberExpired(member_id, "its session timed out")
        self.timeouts.append(Timeout("session", member_id, self.environment.config.session_timeout_ms, expired))

    def watch_revocation(self, member: Member) -> None:
        """Start the timer of the member's revocation, or stop it if the member has nothing to revoke."""
        if member.state is MemberState.UNREVOKED_TASKS:
            timeout_ms = member.rebalance_timeout_ms
            event = RevocationExpired(member.member_id, member.epoch, timeout_ms)
            self.timeouts.append(Timeout("rebalance", member.member_id, timeout_ms, event))
        else:
            self.timeouts.append(Timeout("rebalance", member.member_id))

    def remove(self, member: Member) -> None:
        """Remove a member; the group epoch rises, so that the others get its tasks."""
        group = self.group
        self.records += [
            v.CurrentAssignment(member.member_id, None),
            v.TargetAssignment(member.member_id, None),
            v.MemberMetadata(member.member_id, None),
        ]
        self.timeouts += [Timeout("session", member.member_id), Timeout("rebalance", member.member_id)]
        self._raise_epoch(group.validated_topology_epoch, group.assignment_configs)

    def request_shutdown(self, member_id: str) -> None:
        """Remember that a member asks the whole application to stop; the first one counts."""
        if self.shutdown_member_id is None:
            self.shutdown_member_id = member_id
            log.info("Member %s asks streams group %s to shut down", member_id, self.group.group_id)

    # The topology

    def take_topology(self, topology: Topology | None, member: Member) -> None:
        """Take the topology of a joining member: the first one counts. Raises ApiError(INVALID_REQUEST) for another.

        A member with an older topology joins; its response says so, and it gets tasks all the same.
        """
        known = self.group.topology
        if topology is not None and known is None:
            self.topology = topology
            self.records.append(v.GroupTopology(topology))
        elif topology is not None and known is not None and topology.epoch >= known.epoch and topology != known:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        if known is not None and member.topology_epoch < known.epoch:
            self.statuses.append(
                Status(
                    StatusCode.STALE_TOPOLOGY,
                    f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch"
                    f" {known.epoch}.",
                )
            )

    def configure(self) -> ConfiguredTopology:
        """Return the topology with the topics that exist. Raises ApiError for a group without a topology."""
        group, image, topology = self.group, self.environment.image, self.topology
        if topology is None:  # only a log that was damaged or compacted by another program lacks it
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Group {group.group_id} has no topology.")
        configured = self.configured
        if configured is not None and topology is group.topology and group.image_compared == image.number:
            return configured
        self.has_compared_topics = True
        self.metadata_hash = metadata_hash(topology.required_topics(), image.snapshot)
        if configured is None or topology is not group.topology or self.metadata_hash != group.metadata_hash:
            configured = self.configured = configure(topology, image.snapshot.partition_count)
        return configured

    def check_tasks(self, owned: Tasks | None) -> None:
        """Check that the tasks that a member reports exist. Raises ApiError(INVALID_REQUEST)."""
        configured = self.configured
        if owned is None or configured is None or not configured.is_ready:
            return
        for role in (owned.active, owned.standby, owned.warmup):
            for id_, partitions in role.items():
                subtopology = configured.subtopologies.get(id_)
                if subtopology is None:
                    message = f"Subtopology {id_} does not exist in the topology."
                    raise ApiError(ErrorCode.INVALID_REQUEST, message)
                count = subtopology.number_of_tasks
                wrong = [partition for partition in partitions if not 0 <= partition < count]
                if wrong:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {min(wrong)} for subtopology {id_} is invalid. Number of tasks for this subtopology:"
                        f" {count}",
                    )

    def report(self) -> None:
        """Add the statuses that concern the whole group."""
        problem = None if self.configured is None else self.configured.problem
        if problem is not None:
            self.statuses.append(problem)
        if self.shutdown_member_id is not None:
            self.statuses.append(
                Status(
                    StatusCode.SHUTDOWN_APPLICATION,
                    f"Streams group member {self.shutdown_member_id} encountered a fatal error and requested a shutdown"
                    " for the entire application.",
                )
            )

    # The group epoch

    def advance_epoch(self, *, is_changed: bool) -> None:
        """Raise the group epoch if the members, the topology, its topics or the configuration have changed."""
        group = self.group
        is_ready = self.configured is not None and self.configured.is_ready
        validated = self.topology.epoch if is_ready and self.topology is not None else NO_TOPOLOGY_EPOCH
        configs = self.environment.config.assignment_configs
        if (
            is_changed
            or self.metadata_hash != group.metadata_hash
            or validated != group.validated_topology_epoch
            or configs != group.assignment_configs
        ):
            self._raise_epoch(validated, configs)
            self.is_rebalance = True

    def _raise_epoch(self, validated_topology_epoch: int, assignment_configs: Mapping[str, str]) -> None:
        group = self.group
        if group.epoch >= EPOCH_MAX:  # only another program's record can hold it
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The epoch of group {group.group_id} cannot go up further.")
        self.epoch = group.epoch + 1
        self.records.append(
            v.GroupEpoch(self.epoch, self.metadata_hash, validated_topology_epoch, dict(assignment_configs))
        )
        log.info("Streams group %s is in epoch %d", group.group_id, self.epoch)

    # The target assignment

    def delay_assignment(self) -> None:
        """Let the assignment of a group without members wait for more of them."""
        if not self.group.members and not self.is_delayed:
            self.assignment_delay_ms = self.environment.config.initial_rebalance_delay_ms
            self.is_delayed = self.assignment_delay_ms > 0

    def assign(self, member: Member | None = None) -> tuple[int, Tasks]:
        """Run the assignor if the target is older than the group; returns the target's epoch and the member's part.

        The member is as it will be after this turn; without one, the assignment is for the members that exist.
        """
        group = self.group
        if self.is_delayed:
            self._delayed("initial rebalance delay")
            return group.assignment_epoch, NO_TASKS
        known = NO_TASKS if member is None else group.target_of(member.member_id)
        if group.assignment_epoch >= self.epoch:
            return group.assignment_epoch, known
        if not self._may_assign():
            self._delayed("assignment interval")
            return group.assignment_epoch, known
        members = dict(group.members) if member is None else {**group.members, member.member_id: member}
        configs = self.environment.config
        self.has_assigned = True
        target = assign_tasks(members, group.target, self.configure(), configs.num_standby_replicas)
        for member_id, tasks in target.items():
            if tasks != group.target.get(member_id):
                self.records.append(v.TargetAssignment(member_id, tasks))
        self.records.append(v.TargetEpoch(self.epoch, self.environment.now_ms))
        log.info("Assigned streams group %s for epoch %d", group.group_id, self.epoch)
        return self.epoch, NO_TASKS if member is None else target[member.member_id]

    def _may_assign(self) -> bool:
        now_ms, interval_ms = self.environment.now_ms, self.environment.config.assignment_interval_ms
        return not any(
            last_ms != NO_TIMESTAMP and last_ms <= now_ms < last_ms + interval_ms  # rule 1
            for last_ms in (self.group.assignment_timestamp_ms, self.group.assignment_refused_ms)
        )

    def _delayed(self, cause: str) -> None:
        detail = f"Assignment delayed due to the configured {cause}."
        self.statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))

    # The member's step

    def reconcile(self, member: Member, target_epoch: int, target: Tasks, reported: Tasks | None) -> Member:
        """Move the member a step towards the target."""
        if member.is_reconciled_to(target_epoch):
            return member
        after = reconcile(member, Aim(target_epoch, target, self.group.owners, reported))
        if after != member:
            self.records.append(v.CurrentAssignment(after.member_id, after))
            self.watch_revocation(after)
        return after

    # Endpoints

    def endpoints(self, member: Member, known_epoch: int, *, has_other_tasks: bool) -> list[EndpointPartitions] | None:
        """Return the endpoints of all members if the member knows older ones; `has_other_tasks`: than it had."""
        if has_other_tasks and member.user_endpoint is not None:
            self.endpoint_epoch += 1
        if self.endpoint_epoch == known_epoch or self.configured is None:
            return None
        others = [other for other in self.group.members.values() if other.member_id != member.member_id]
        members: Sequence[Member] = [*others, member]
        return endpoints_of(members, self.configured, self.environment.image.snapshot.partition_count)
