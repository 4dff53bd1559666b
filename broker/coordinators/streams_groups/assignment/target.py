"""The target assignment of a streams group. Pure.

Source: Kafka's TargetAssignmentBuilder (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.coordinators.streams_groups.assignment import sticky
from barnabas.broker.coordinators.streams_groups.topology.configured import ConfiguredTopology
from barnabas.broker.coordinators.streams_groups.values import NO_TASKS, Member, Tasks


def assign_tasks(
    members: Mapping[str, Member],
    target: Mapping[str, Tasks],
    configured: ConfiguredTopology,
    num_standby_replicas: int,
) -> dict[str, Tasks]:
    """Return the tasks of each member. `target` is the previous assignment.

    No member gets a task while the topology is not ready.
    """
    if not members or not configured.is_ready:
        return dict.fromkeys(members, NO_TASKS)
    specs = {
        member_id: sticky.MemberSpec(member.process_id, target.get(member_id, NO_TASKS))
        for member_id, member in members.items()
    }
    subtopologies = {
        id_: sticky.SubtopologySpec(found.number_of_tasks, found.is_stateful)
        for id_, found in configured.subtopologies.items()
    }
    return sticky.assign(specs, subtopologies, num_standby_replicas)
