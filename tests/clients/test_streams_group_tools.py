"""kafka-streams-groups and kafka-groups from the 4.3.1 jars, on streams groups whose members send raw heartbeats."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from tests.compare.conversation import Conversation
from tests.compare.streams_group_questions import Member, is_ready, subtopology, topology
from tests.support.cluster import Target
from tests.support.kafka.kafka_tools import KafkaTools, ToolResult
from tests.support.kafka.tool_tables import rows
from tests.support.waiting import eventually

OFFSET = 5  # that `commit` commits in partition 0


class Application:
    """An application with one member, and the tools."""

    def __init__(self, tools: KafkaTools, target: Target, group_id: str, topic: str) -> None:
        self.id = group_id
        self.changelog = f"{group_id}-store-changelog"
        self._tools = tools
        self._where = ("--bootstrap-server", target.bootstrap)
        conversation = Conversation(int(target.bootstrap.rpartition(":")[2]))
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
        eventually("a coordinator", lambda: not conversation.ask(find, 4).coordinators[0].error_code)
        self.member = Member(conversation, group_id, topic, ZERO_UUID)
        self.member.topology = topology(subtopology("0", topic, changelogs=(self.changelog,)))
        unknown = ErrorCode.GROUP_ID_NOT_FOUND
        eventually("the coordinator serves", lambda: self.member.heartbeat(1).error_code == unknown)
        self.member.assign_at_once()

    def start(self) -> None:
        """Join, wait for the tasks and commit."""
        assert self.member.join().error_code == ErrorCode.NONE
        self.member.until("the changelog exists", is_ready)
        assert self.member.consumer().commit().topics[0].partitions[0].error_code == ErrorCode.NONE

    def run(self, *arguments: str, tool: str = "kafka-streams-groups") -> ToolResult:
        """Run the tool."""
        return self._tools.run(tool, *self._where, *arguments)

    def row(self, *arguments: str) -> dict[str, str]:
        """Return the only row of the tool's table about this group."""
        (found,) = (row for row in rows(self.run(*arguments).check().stdout) if row["GROUP"] == self.id)
        return found

    def refusal(self, *arguments: str) -> str:
        """Return what the tool says to a command for this group that is refused."""
        result = self.run(*arguments, "--group", self.id)
        output = result.stdout + result.stderr
        assert "Error" in output
        return output


@pytest.fixture
def application(tools: KafkaTools, target: Target, unused_name: str, create_topic: Callable[..., str]) -> Application:
    """An application that reads a topic of two partitions, and has not started."""
    return Application(tools, target, unused_name, create_topic(partitions=2))


def test_a_running_application(application: Application) -> None:
    application.start()
    assert application.row("--list", "--state")["STATE"] == "Stable"
    state = application.row("--describe", "--group", application.id, "--state", "--verbose")
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"] == str(application.member.epoch)
    member = application.row("--describe", "--group", application.id, "--members")
    assert (member["MEMBER"], member["PROCESS"], member["CLIENT-ID"]) == ("one", "p1", "compare")
    offsets = rows(application.run("--describe", "--group", application.id, "--offsets", "--verbose").check().stdout)
    assert {row["PARTITION"]: row["CURRENT-OFFSET"] for row in offsets} == {"0": str(OFFSET), "1": "-"}
    listed = rows(application.run("--list", "--streams", tool="kafka-groups").stdout)
    assert [row["TYPE"] for row in listed if row["GROUP"] == application.id] == ["Streams"]
    assert "is not EMPTY" in application.refusal("--delete")
    assert "inactive" in application.refusal("--reset-offsets", "--all-input-topics", "--to-earliest", "--execute")


def test_an_application_that_stopped(application: Application, admin: AdminClient) -> None:
    application.start()
    application.member.leave()
    assert application.row("--list", "--state")["STATE"] == "Empty"
    everything = ("--group", application.id, "--all-input-topics")
    reset = application.row("--reset-offsets", *everything, "--to-earliest", "--execute")
    assert (reset["PARTITION"], reset["NEW-OFFSET"]) == ("0", "0")
    deleted = rows(application.run("--delete-offsets", *everything).check().stdout)
    assert {row["STATUS"] for row in deleted} == {"Successful"}
    assert application.changelog in admin.list_topics().topics
    application.run("--delete", "--group", application.id, "--delete-all-internal-topics").check()
    assert "not found" in application.refusal("--describe")
    eventually("the changelog is gone", lambda: application.changelog not in admin.list_topics().topics)
