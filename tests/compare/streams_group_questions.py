"""The responses to members of streams groups (KIP-1071), step by step; see `group_life_questions`.

Which of equal members gets a task is free; where it matters, the answers count tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k88_streams_group_heartbeat as k88
from barnabas.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.k88_streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskIds, Topology
from barnabas.protocol.messages.k89_streams_group_describe import StreamsGroupDescribeRequest
from tests.compare import consumer_group_questions as consumer
from tests.compare import group_life_questions as classic
from tests.compare.conversation import AnswersByVersion, Conversation
from tests.support.waiting import eventually

Story = Callable[["Member"], Iterator[tuple[str, Any]]]
REBALANCE_TIMEOUT_MS = 30_000


def subtopology(
    id_: str, *sources: str, reads: Mapping[str, int] | None = None, writes: tuple[str, ...] = (),
    changelogs: tuple[str, ...] = (), together: bool = False,
) -> k88.Subtopology:  # fmt: skip
    """Return a subtopology; `together`: all that it reads is copartitioned."""
    reads = reads or {}
    group = k88.CopartitionGroup(
        source_topics=list(range(len(sources))), repartition_source_topics=list(range(len(reads)))
    )
    return k88.Subtopology(
        subtopology_id=id_,
        source_topics=list(sources),
        repartition_sink_topics=list(writes),
        repartition_source_topics=[k88.TopicInfo(name=name, partitions=count) for name, count in reads.items()],
        state_changelog_topics=[k88.TopicInfo(name=name) for name in changelogs],
        copartition_groups=[group] if together else [],
    )


def topology(*subtopologies: k88.Subtopology, epoch: int = 0) -> Topology:
    """Return a topology of these subtopologies."""
    return Topology(epoch=epoch, subtopologies=list(subtopologies))


def tasks(*partitions: int, id_: str = "0") -> list[TaskIds]:
    """Return tasks of a subtopology."""
    return [TaskIds(subtopology_id=id_, partitions=list(partitions))] if partitions else []


@dataclass(slots=True)
class Member:
    """A member of the streams protocol. It keeps its epoch, and the tasks that it was told."""

    conversation: Conversation
    group: str
    topic: str
    topic_id: bytes
    member_id: str = "one"
    process_id: str = "p1"
    topology: Topology | None = None
    epoch: int = 0
    endpoint_epoch: int = 0
    active: list[TaskIds] | None = None
    standby: list[TaskIds] | None = None

    def another(self, member_id: str, process_id: str) -> Member:
        """Return another member of the same group, with the same topology."""
        return Member(self.conversation, self.group, self.topic, self.topic_id, member_id, process_id, self.topology)

    def consumer(self) -> consumer.Member:
        """Return a member of the consumer protocol, which can ask about any group."""
        return consumer.Member(self.conversation, self.group, self.topic, self.topic_id, self.member_id, self.epoch)

    def classic(self) -> classic.Member:
        """Return a member of the classic protocol, which can ask about any group."""
        return classic.Member(self.conversation, self.group, self.topic)

    def heartbeat(self, epoch: int | None = None, **fields: Any) -> Any:
        """Send a heartbeat with these fields."""
        epoch = self.epoch if epoch is None else epoch
        given = {
            "group_id": self.group, "member_id": self.member_id, "endpoint_information_epoch": self.endpoint_epoch,
            **fields,
        }  # fmt: skip
        answer = self.conversation.ask(StreamsGroupHeartbeatRequest(member_epoch=epoch, **given), 0)
        if answer.error_code == ErrorCode.NONE:
            self._remember(answer)
        return answer

    def _remember(self, answer: Any) -> None:
        self.epoch = answer.member_epoch
        self.endpoint_epoch = answer.endpoint_information_epoch
        for found in (answer.active_tasks, answer.standby_tasks):
            for ids in found or ():
                ids.partitions.sort()
            if found is not None:
                found.sort(key=lambda ids: ids.subtopology_id)
        if answer.active_tasks is not None:
            self.active, self.standby = deepcopy(answer.active_tasks), deepcopy(answer.standby_tasks)
        if answer.status is not None:
            answer.status.sort(key=lambda status: status.status_code)
        endpoints = answer.partitions_by_user_endpoint or []
        endpoints.sort(key=lambda found: found.user_endpoint.host)
        for endpoint in endpoints:
            for topics in (endpoint.active_partitions, endpoint.standby_partitions):
                topics.sort(key=lambda found: found.topic)
                for found in topics:
                    found.partitions.sort()

    def join(self, **fields: Any) -> Any:
        """Join the group."""
        return self.heartbeat(0, **self._identity(), topology=self.topology, **fields)

    def _identity(self) -> dict[str, Any]:
        return {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "process_id": self.process_id, "active_tasks": [],
            "standby_tasks": [], "warmup_tasks": [],
        }  # fmt: skip

    def try_to_join(self, **fields: Any) -> Any:
        """Join the group with other fields than usual."""
        given = {**self._identity(), "topology": self.topology, **fields}
        return self.heartbeat(0, **given)

    def obey(self) -> Any:
        """Report the tasks that the member was told to have."""
        return self.owns(self.active or [], self.standby or [])

    def owns(self, active: list[TaskIds], standby: list[TaskIds], **fields: Any) -> Any:
        """Report these tasks."""
        return self.heartbeat(active_tasks=active, standby_tasks=standby, warmup_tasks=[], **fields)

    def leave(self, **fields: Any) -> Any:
        """Leave the group."""
        return self.heartbeat(-1, **fields)

    def configure(self, **configs: str) -> None:
        """Change the group's configuration, and wait until it is known."""
        assert self.consumer().configure(**configs).responses[0].error_code == ErrorCode.NONE
        for name, value in configs.items():
            key = name.replace("_", ".")
            eventually(f"{key} is known", lambda key=key, value=value: self.consumer().setting(key) == value)

    def assign_at_once(self) -> None:
        """Let every change have a new assignment at once."""
        self.configure(streams_assignment_interval_ms="0", streams_initial_rebalance_delay_ms="0")

    def create(self, name: str, partitions: int) -> None:
        """Create a topic, and wait until the broker knows it."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        (created,) = self.conversation.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert created.error_code == ErrorCode.NONE, created
        wanted = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        latest = ListOffsetsRequest(replica_id=-1, topics=[wanted])
        eventually(
            f"{name} has a leader",
            lambda: self.conversation.ask(latest, 4).topics[0].partitions[0].error_code == ErrorCode.NONE,
        )

    def make_known(self, name: str) -> None:
        """Let the group's coordinator know a topic, and delete the group that did so."""
        mine = self.topology
        self.topology = topology(subtopology("0", name))
        if not is_ready(self.join()):
            self.until(f"the coordinator knows {name}", is_ready)
        self.leave()
        self.classic().delete()
        self.topology = mine

    def until(self, what: str, is_so: Callable[[Any], bool]) -> Any:
        """Send heartbeats until an answer is as expected; the topics are created in the background."""

        def answer() -> Any:
            given = self.obey()
            return given if is_so(given) else None

        return eventually(what, answer)

    def describe(self) -> Any:
        """Describe the group, with its members sorted by id."""
        answer = self.conversation.ask(
            StreamsGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=True), 0
        )
        for group in answer.groups:
            group.members.sort(key=lambda member: member.member_id)
            for member in group.members:
                for part in (member.assignment, member.target_assignment):
                    for found in (part.active_tasks, part.standby_tasks, part.warmup_tasks):
                        for ids in found:
                            ids.partitions.sort()
        return answer


def is_ready(answer: Any) -> bool:
    """Whether an answer has no status."""
    return not answer.status


def questions(topic: str, topic_id: bytes) -> Iterator[tuple[str, Callable[[Conversation], AnswersByVersion]]]:
    """Return the stories by name, each with its own group."""
    for what, story in STORIES.items():
        yield f"Streams group: {what}", lambda asked, what=what, story=story: _tell(asked, what, story, topic, topic_id)


def _tell(conversation: Conversation, what: str, story: Story, topic: str, topic_id: bytes) -> AnswersByVersion:
    member = Member(conversation, f"streams-group-{what.replace(' ', '-')}", topic, topic_id)
    member.topology = topology(subtopology("0", topic))
    return {
        f"{number}. {step}": conversation.comparable(answer) for number, (step, answer) in enumerate(story(member), 1)
    }


def _refused(one: Member) -> Iterator[tuple[str, Any]]:
    """Inconsistent requests, and requests with unknown ids."""
    for name in ("member_id", "group_id", "instance_id", "rack_id"):
        yield f"join with an empty {name}", one.try_to_join(**{name: ""})
    yield "join with a blank rack", one.try_to_join(rack_id=" ")
    yield "join with an instance id", one.try_to_join(instance_id="i")
    yield "join without a rebalance timeout", one.try_to_join(rebalance_timeout_ms=-1)
    yield "join without a topology", one.try_to_join(topology=None)
    yield "join with an active task", one.try_to_join(active_tasks=tasks(0))
    yield "join with a standby task", one.try_to_join(standby_tasks=tasks(0))
    yield "join with a warm-up task", one.try_to_join(warmup_tasks=tasks(0))
    yield "join with active tasks only", one.try_to_join(standby_tasks=None, warmup_tasks=None)
    offsets = [k88.TaskOffset(subtopology_id="0", partition=0, offset=1)]
    yield "join with task offsets", one.try_to_join(task_offsets=offsets)
    yield "join with end offsets of tasks", one.try_to_join(task_end_offsets=[])
    regex = k88.Subtopology(subtopology_id="0", source_topic_regex=["a.*"])
    yield "join with a regular expression", one.try_to_join(topology=topology(regex))
    yield "an internal topic", one.try_to_join(topology=topology(subtopology("0", "__consumer_offsets")))
    yield "a topic that cannot be", one.try_to_join(topology=topology(subtopology("0", "no topic")))
    changelog = subtopology("0", one.topic)
    changelog.state_changelog_topics = [k88.TopicInfo(name="streams-refused-changelog", partitions=3)]
    yield "a changelog with a partition count", one.try_to_join(topology=topology(changelog))
    yield "a subtopology that reads nothing", one.try_to_join(topology=topology(subtopology("0")))
    loop = subtopology("0", reads={"streams-refused-r": 0}, writes=("streams-refused-r",))
    yield "a repartition topic that depends on itself", one.try_to_join(topology=topology(loop))
    unwritten = subtopology("0", one.topic, reads={"streams-refused-r": 0})
    yield "a repartition topic that nothing writes", one.try_to_join(topology=topology(unwritten))
    yield "leave for a while", one.heartbeat(-2)
    yield "leave for a while as an instance", one.heartbeat(-2, instance_id="i")
    yield "an epoch that means nothing", one.heartbeat(-3)
    yield "heartbeat with a topology", one.heartbeat(1, topology=one.topology)
    yield "heartbeat to no group", one.heartbeat(1)
    yield "leave no group", one.leave()
    yield "describe no group", one.describe()
    yield "delete no group", one.classic().delete()
    yield "describe a group without a name", one.conversation.ask(StreamsGroupDescribeRequest(group_ids=[""]), 0)


def _life(one: Member) -> Iterator[tuple[str, Any]]:
    """A member alone, from its first join to the end of its group."""
    one.assign_at_once()
    yield "join", one.join(client_tags=[k88.KeyValue(key="zone", value="a")], rack_id="r")
    yield "report the tasks", one.obey()
    yield "heartbeat", one.heartbeat()
    yield (
        "a full heartbeat",
        one.owns(
            one.active or [], [], rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, process_id=one.process_id, rack_id="r"
        ),
    )
    yield "describe", one.describe()
    yield "describe as a classic group", one.classic().describe()
    yield "describe as a consumer group", one.consumer().describe()
    yield "list", one.consumer().listed()
    yield "list streams groups", one.consumer().listed(types_filter=["Streams"])
    yield "list consumer groups", one.consumer().listed(types_filter=["consumer"])
    yield "list stable groups", one.consumer().listed(states_filter=["stable"])
    yield "list groups that are not ready", one.consumer().listed(states_filter=["NotReady"])
    yield "heartbeat as somebody else", one.heartbeat(member_id="nobody")
    yield "heartbeat in a later epoch", one.heartbeat(9)
    yield "heartbeat in an earlier epoch", one.heartbeat(1)
    yield "report a task that is none", one.owns(tasks(9), [])
    yield "report a task of an unknown subtopology", one.owns(tasks(0, id_="7"), [])
    yield "report a negative task", one.owns(tasks(-1), [])
    yield "join again", one.join()
    yield "report the tasks again", one.obey()
    yield "join as a consumer", one.consumer().join()
    yield "join as a member of a classic group", one.classic().join()
    yield "commit", one.consumer().commit()
    yield "commit as in v8", one.consumer().commit(version=8)
    yield "commit in a later epoch", one.consumer().commit(9)
    yield "commit in an earlier epoch", one.consumer().commit(1)
    yield "commit as somebody else", one.consumer().commit(member_id="nobody")
    yield "commit as nobody", one.consumer().commit(-1, member_id="")
    yield "fetch", one.consumer().fetch("one", one.epoch)
    yield "fetch in a later epoch", one.consumer().fetch("one", 9)
    yield "fetch as somebody else", one.consumer().fetch("nobody", 1)
    yield "fetch as nobody", one.consumer().fetch(None, -1)
    yield "delete the group", one.classic().delete()
    yield "delete an offset of what it reads", one.classic().delete_offset(one.topic)
    yield "another rack", one.heartbeat(rack_id="s")
    yield "report the tasks in the new epoch", one.obey()
    yield "leave as somebody else", one.leave(member_id="nobody")
    yield "leave", one.leave()
    yield "heartbeat after leaving", one.heartbeat(3)
    yield "leave again", one.leave()
    yield "describe the empty group", one.describe()
    yield "list the empty group", one.consumer().listed(states_filter=["empty"])
    yield "commit as nobody to the empty group", one.consumer().commit(-1, member_id="")
    yield "delete an offset of the empty group", one.classic().delete_offset(one.topic)
    yield "join the empty group as a consumer", one.consumer().join()
    yield "join it again", one.join()
    yield "leave it again", one.leave()
    yield "delete the empty group", one.classic().delete()
    yield "describe the deleted group", one.describe()
    yield "delete it again", one.classic().delete()


def _several(one: Member) -> Iterator[tuple[str, Any]]:
    """Two tasks move between members."""
    one.assign_at_once()
    two = one.another("two", "p2")
    one.join()
    yield "the first one has both tasks", one.obey()
    yield "another one joins", _counted(two.join())
    yield "the first one is to revoke one", one.heartbeat()
    yield "the group while a task is revoked", one.describe()
    yield "the first one has not revoked it", one.owns(tasks(0, 1), [])
    yield "the other one waits", _counted(two.obey())
    yield "the first one has revoked it", _counted(one.obey())
    yield "the other one gets it", _counted(two.obey())
    yield "nothing changes", _counted(one.obey())
    yield "an answer was lost", _counted(one.owns(one.active or [], [], endpoint_information_epoch=0))
    yield "the other one leaves", two.leave()
    yield "the first one has both again", one.heartbeat()
    yield "nothing changes any more", one.obey()
    yield "leave", one.leave()


def _standby(one: Member) -> Iterator[tuple[str, Any]]:
    """Standby tasks, and the changelog that they need."""
    one.assign_at_once()
    one.configure(streams_num_standby_replicas="1")
    one.topology = topology(subtopology("0", one.topic, changelogs=("streams-standby-changelog",)))
    two, three = one.another("two", "p2"), one.another("three", "p1")
    yield "the changelog is missing", one.join()
    yield "it is created", one.until("the changelog exists", is_ready)
    yield "describe the group", one.describe()
    yield "a member of another process joins", _counted(two.join())
    for number in range(1, 4):
        yield f"the first one, {number}", _counted(one.obey())
        yield f"the other one, {number}", _counted(two.obey())
    yield "a member of the same process joins", _counted(three.join())
    for number in range(4, 7):
        yield f"the first one, {number}", _counted(one.obey())
        yield f"the other one, {number}", _counted(two.obey())
        yield f"the third one, {number}", _counted(three.obey())
    one.configure(streams_num_standby_replicas="0")
    yield "no standby tasks any more", _counted(one.obey())
    one.leave()
    two.leave()
    three.leave()


def _topics(one: Member) -> Iterator[tuple[str, Any]]:
    """Topics that are missing, or have the wrong partitions."""
    one.assign_at_once()
    one.topology = topology(
        subtopology("0", one.topic, "streams-topics-source", writes=("streams-topics-r",), together=False),
        subtopology("1", reads={"streams-topics-r": 0}),
    )
    yield "a source topic is missing", one.join()
    yield "it is still missing", one.obey()
    yield "the group is not ready", one.describe()
    yield "list it", one.consumer().listed(states_filter=["not_ready"])
    one.create("streams-topics-source", 3)
    yield (
        "the repartition topic is missing",
        one.until("the source topic is known", lambda given: not given.status or given.status[0].status_code != 1),
    )
    yield "all topics exist", one.until("the repartition topic exists", is_ready)
    yield "its tasks", one.obey()
    yield "describe it", one.describe()
    one.leave()


def _wrong(one: Member) -> Iterator[tuple[str, Any]]:
    """Topics that do not fit the topology."""
    one.assign_at_once()
    for name in ("streams-wrong-changelog", "streams-wrong-source"):
        one.create(name, 5)
        one.make_known(name)
    one.topology = topology(subtopology("0", one.topic, changelogs=("streams-wrong-changelog",)))
    yield "a changelog with other partitions", one.join()
    yield "describe it", one.describe()
    one.leave()
    one.classic().delete()
    one.topology = topology(subtopology("0", one.topic, "streams-wrong-source", together=True))
    yield "sources that are not copartitioned", one.join()
    yield "describe it again", one.describe()
    one.leave()
    one.classic().delete()
    one.topology = topology(
        subtopology("0", one.topic, writes=("streams-wrong-r",)),
        subtopology("1", "streams-wrong-source", reads={"streams-wrong-r": 4}, together=True),
    )
    yield "a repartition topic that is not copartitioned", one.join()
    one.leave()
    one.classic().delete()


def _topologies(one: Member) -> Iterator[tuple[str, Any]]:
    """Topologies that are older, newer or other than the group's."""
    one.assign_at_once()
    mine = one.topology
    one.topology = topology(subtopology("0", one.topic), epoch=3)
    yield "join with epoch 3", one.join()
    two = one.another("two", "p2")
    two.topology = topology(subtopology("0", one.topic), epoch=2)
    yield "join with an older epoch", _counted(two.join())
    yield "heartbeat with an older epoch", _counted(two.heartbeat())
    yield "describe", one.describe()
    two.topology = topology(subtopology("0", one.topic, writes=("streams-topologies-r",)), epoch=3)
    yield "join with another topology of the same epoch", two.join()
    two.topology = topology(subtopology("0", one.topic), epoch=4)
    yield "join with a newer epoch", two.join()
    one.topology = mine
    two.leave()
    one.leave()


def _endpoints(one: Member) -> Iterator[tuple[str, Any]]:
    """Members say where they answer queries, and learn it of each other."""
    one.assign_at_once()
    two = one.another("two", "p2")
    yield "join with an endpoint", one.join(user_endpoint=k88.Endpoint(host="h1", port=65535))
    yield "the first heartbeat after it", one.obey()
    yield "without news", one.obey()
    yield "another one joins without an endpoint", _counted(two.join())
    yield "the first one is to revoke a task", _counted(one.obey())
    yield "the first one has revoked it", _counted(one.obey())
    yield "the other one", _counted(two.obey())
    yield "the other one names an endpoint", _counted(two.heartbeat(user_endpoint=k88.Endpoint(host="h2", port=1)))
    yield "the other one again", _counted(two.obey())
    yield "the first one learns it", _counted(one.obey())
    yield "a member that knows nothing", _counted(one.owns(one.active or [], [], endpoint_information_epoch=-1))
    yield "the other one leaves", two.leave()
    yield "the first one gets its task", _counted(one.obey())
    yield "and learns that it is alone", _counted(one.obey())
    one.leave()


def _shutdown(one: Member) -> Iterator[tuple[str, Any]]:
    """A member asks that the whole application stops."""
    one.assign_at_once()
    two = one.another("two", "p2")
    one.join()
    _counted(two.join())
    yield "the request", _counted(two.heartbeat(shutdown_application=True))
    yield "the first one learns it", _counted(one.heartbeat())
    yield "the other one leaves", two.leave(shutdown_application=True)
    yield "the first one is still to stop", _counted(one.heartbeat())
    yield "the first one leaves", one.leave()
    yield "a new member need not stop", one.join()
    one.leave()


def _delay(one: Member) -> Iterator[tuple[str, Any]]:
    """The first assignment waits for more members; another one rests after it."""
    one.configure(streams_assignment_interval_ms="15000")
    yield "join", one.join()
    yield "heartbeat meanwhile", one.obey()
    yield "another one joins", one.another("two", "p2").join()
    yield "describe", one.describe()
    yield "the assignment", _counted(one.until("the delay is over", lambda given: bool(given.active_tasks)))
    three = one.another("three", "p3")
    yield "a third one has to wait", three.join()
    yield "and waits", three.obey()
    for member_id in ("one", "two", "three"):
        one.another(member_id, "").leave()


def _counted(answer: Any) -> Any:
    """Number the tasks of an answer: which ones a member gets is free."""
    for found in (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks):
        for ids in found or ():
            ids.partitions = list(range(len(ids.partitions)))
    for endpoint in answer.partitions_by_user_endpoint or ():
        for topics in (endpoint.active_partitions, endpoint.standby_partitions):
            for topic in topics:
                topic.partitions = list(range(len(topic.partitions)))
    return answer


STORIES: Mapping[str, Story] = {
    "requests that are refused": _refused,
    "a member alone": _life,
    "several members": _several,
    "standby tasks": _standby,
    "topics that are missing": _topics,
    "topics that do not fit": _wrong,
    "topologies": _topologies,
    "endpoints": _endpoints,
    "shutdown": _shutdown,
    "delays": _delay,
}
