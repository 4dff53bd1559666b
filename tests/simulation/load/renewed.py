"""The part of a load whose topics are deleted and made anew under their names, with a group's offset in each.

The offset of a topic that was deleted is not of the one that has its name now, even if a coordinator learns of both in
one push. `Coordinators.former_offsets` finds those that stay. Checked where nothing breaks: an offset is removed by a
record, and one that the log refuses is removed by the next coordinator.

Threads: a client has one task; the part is of the driver's task.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.simulation.load.clients.admin import DELETE_TOPICS_VERSION, TIMEOUT_MS, Admin
from tests.simulation.load.clients.client import GROUP, Address
from tests.simulation.load.part import Part, Setting

OFFSET_COMMIT_VERSION: Final = 8


class Renewer(Admin):
    """See the module; its topic and its group have its name."""

    def __init__(self, name: str, bootstrap: list[Address], replicas: int, pause_s: float) -> None:
        super().__init__(name, bootstrap)
        self._replicas = replicas
        self._pause_s = pause_s
        self.rounds = 0

    def run(self) -> None:
        """Renew the topic until it is asked to stop."""
        while not self.is_stopping:
            self.create_topic(self.name, 1, self._replicas, {})
            self._commit()
            self._delete()
            self.create_topic(self.name, 1, self._replicas, {})
            self.rounds += 1
            self.wait(self._pause_s)
        self.close()

    def _commit(self) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.name, topics=[OffsetCommitRequestTopic(name=self.name, partitions=[partition])]
        )
        self.until_answered(
            lambda: self.ask_coordinator(GROUP, self.name, request, OFFSET_COMMIT_VERSION),
            lambda it: it.topics[0].partitions[0].error_code,
            f"OffsetCommit of {self.name}",
        )

    def _delete(self) -> None:
        wanted = DeleteTopicState(name=self.name, topic_id=bytes(16))
        while True:
            answer = self.ask_any(DeleteTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), DELETE_TOPICS_VERSION)
            error = answer.responses[0].error_code
            if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not self.may_pass(error, f"delete {self.name}"):
                return


class Renewed(Part):
    """See the module."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        story = setting.story
        self._setting = setting
        self._renewers = [
            Renewer(f"renewed-{number}", setting.bootstrap, min(3, story.brokers), setting.pause_s)
            for number in range(story.renewers)
        ]
        self.clients = [*self._renewers]

    def check(self) -> Iterable[str]:
        """See Part."""
        if not self._setting.story.faults:
            yield from self._setting.coordinators.former_offsets()

    def summary(self) -> str:
        """See Part."""
        return f"{sum(renewer.rounds for renewer in self._renewers)} topics made anew"
