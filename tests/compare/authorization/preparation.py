"""What a fresh broker is given before the questions: topics, groups, transactions, tokens, and all users' ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.protocol.api_keys import ApiKey as Key
from barnabas.protocol.errors import ErrorCode
from tests.compare.authorization.questions.build import build
from tests.compare.authorization.session import Session
from tests.compare.authorization.users import EVERYBODY, FOR_EVERYBODY, PUBLIC, Rules, Type
from tests.compare.authorization.world import SHARE_KEY, World
from tests.support.waiting import eventually

_ACLS_AT_ONCE = 500
_ANY, _NO_VALUE = 1, None
_DAY_MS = 86_400_000


class Preparation:
    """Prepares a broker as its super user."""

    def __init__(self, admin: Session) -> None:
        self._admin = admin
        self.world = World()

    def prepare(self, users: Mapping[Rules, str]) -> None:
        """Do everything, and wait until the broker knows it."""
        for name in ("open-t", "shut-t", PUBLIC, "open-d", "shut-d"):
            self.create_topic(name)
        for beginning in ("open-", "shut-"):
            self._commit_offsets(f"{beginning}g")
            self._join_consumer_group(f"{beginning}c")
            self._join_share_group(f"{beginning}s")
            self._alter_share_offsets(f"{beginning}e")
            self._begin_transaction(f"{beginning}x")
            self._create_token(f"{beginning}u", f"{beginning}token")
        self._create_acls(users)

    def create_topic(self, name: str) -> None:
        """Create a topic and wait until the broker leads it."""
        configs = [{"name": "retention.ms", "value": "-1"}]  # the records are old
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
        (created,) = self._ask(Key.CREATE_TOPICS, 7, topics=[topic], timeout_ms=10_000).topics
        assert not created.error_code, created
        self.world.add_topic(name, created.topic_id)
        partition = {"partition_index": 0, "timestamp": -1}
        latest = {"replica_id": -1, "topics": [{"name": name, "partitions": [partition]}]}
        eventually(
            f"{name} has a leader",
            lambda: not self._ask(Key.LIST_OFFSETS, 4, **latest).topics[0].partitions[0].error_code,
        )

    def restore_topics(self, names: Iterable[str]) -> None:
        """Create topics again that a user deleted, once the broker knows that they are gone."""
        missing = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        if not missing["topics"]:
            return
        eventually(
            "the topics are gone", lambda: all(t.error_code for t in self._ask(Key.METADATA, 12, **missing).topics)
        )
        for name in names:
            self.create_topic(name)

    def _ask(self, key: int, version: int, **fields: Any) -> Any:
        answer = self._admin.ask(build(key, fields), version)
        assert answer is not None, f"the broker closes the connection of the super user, who sends {key}"
        return answer

    def _commit_offsets(self, group: str) -> None:
        self._await_coordinator(group, 0)
        partitions = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
        topics = [{"name": name, "partitions": partitions} for name in ("open-t", "shut-t")]
        fields = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics}

        def is_committed() -> bool:
            answer = self._ask(Key.OFFSET_COMMIT, 9, **fields)
            return not any(partition.error_code for topic in answer.topics for partition in topic.partitions)

        eventually("the offsets are committed", is_committed)

    def _join_consumer_group(self, group: str) -> None:
        self._await_coordinator(group, 0)
        fields = {
            "group_id": group,
            "member_id": f"member of {group}",
            "rebalance_timeout_ms": _DAY_MS,
            "subscribed_topic_names": ["open-t", "shut-t"],
            "topic_partitions": [],
        }
        epochs = [0]

        def has_joined() -> bool:
            answer = self._ask(Key.CONSUMER_GROUP_HEARTBEAT, 1, **fields, member_epoch=epochs[-1])
            if not answer.error_code:
                epochs.append(answer.member_epoch)
                fields.update({"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout_ms": -1})
            owned = None if answer.assignment is None else answer.assignment.topic_partitions
            return bool(owned)

        eventually(f"a member of {group} has its partitions", has_joined)

    def _join_share_group(self, group: str) -> None:
        self._await_coordinator(group, 0)
        self._await_coordinator(SHARE_KEY, 2, version=6)
        fields = {"group_id": group, "member_id": f"member of {group}"}
        first = {"subscribed_topic_names": ["open-t", "shut-t"]}
        epochs = [0]

        def has_joined() -> bool:
            answer = self._ask(Key.SHARE_GROUP_HEARTBEAT, 1, **fields, **first, member_epoch=epochs[-1])
            if not answer.error_code:
                epochs.append(answer.member_epoch)
                first.clear()
            owned = None if answer.assignment is None else answer.assignment.topic_partitions
            return bool(owned)

        eventually(f"a member of {group} has its partitions", has_joined)

    def _alter_share_offsets(self, group: str) -> None:
        """Make a share group without members."""
        self._await_coordinator(group, 0)
        partitions = [{"partition_index": 0, "start_offset": 0}]
        topics = [{"topic_name": name, "partitions": partitions} for name in ("open-t", "shut-t", PUBLIC)]

        def is_altered() -> bool:
            answer = self._ask(Key.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=topics)
            errors = [partition.error_code for topic in answer.responses for partition in topic.partitions]
            return not answer.error_code and not any(errors)

        eventually(f"{group} has its offsets", is_altered)

    def _begin_transaction(self, transactional_id: str) -> None:
        self._await_coordinator(transactional_id, 1)
        found: list[Any] = []

        def has_producer() -> bool:
            fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 900_000}
            found.append(self._ask(Key.INIT_PRODUCER_ID, 4, **fields))
            return not found[-1].error_code

        eventually("the producer has an id", has_producer)
        topics = [{"name": name, "partitions": [0]} for name in ("open-t", "shut-t")]
        fields = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": found[-1].producer_id,
            "v3_and_below_producer_epoch": found[-1].producer_epoch,
            "v3_and_below_topics": topics,
        }

        def has_begun() -> bool:
            results = self._ask(Key.ADD_PARTITIONS_TO_TXN, 3, **fields).results_by_topic_v3_and_below
            return not any(row.partition_error_code for topic in results for row in topic.results_by_partition)

        eventually("the transaction has its partitions", has_begun)

    def _await_coordinator(self, name: str, kind: int, version: int = 4) -> None:
        def is_found() -> bool:
            answer = self._ask(Key.FIND_COORDINATOR, version, key_type=kind, coordinator_keys=[name])
            return not answer.coordinators[0].error_code

        eventually(f"{name} has a coordinator", is_found)

    def _create_token(self, owner: str, name: str) -> None:
        fields = {
            "owner_principal_type": "User",
            "owner_principal_name": owner,
            "renewers": [],
            "max_lifetime_ms": _DAY_MS,
        }
        created = self._ask(Key.CREATE_DELEGATION_TOKEN, 3, **fields)
        assert not created.error_code, created
        self.world.add_token(name, created.token_id, created.hmac)

    def _create_acls(self, users: Mapping[Rules, str]) -> None:
        given = {
            (rule.right.resource, self._resource_name(rule.right.resource, rule.name), rule.pattern, f"User:{user}",
             rule.host, rule.right.operation, rule.permission)
            for rules, user in ((FOR_EVERYBODY, EVERYBODY), *users.items())
            for rule in rules
        }  # fmt: skip
        fields = (
            "resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation",
            "permission_type",
        )  # fmt: skip
        rows = [dict(zip(fields, row, strict=True)) for row in sorted(given)]
        for first in range(0, len(rows), _ACLS_AT_ONCE):
            answer = self._ask(Key.CREATE_ACLS, 3, creations=rows[first : first + _ACLS_AT_ONCE])
            errors = {result.error_message for result in answer.results if result.error_code}
            assert not errors, errors
        every = {
            "resource_type_filter": _ANY, "resource_name_filter": _NO_VALUE, "pattern_type_filter": _ANY,
            "principal_filter": _NO_VALUE, "host_filter": _NO_VALUE, "operation": _ANY, "permission_type": _ANY,
        }  # fmt: skip

        def count() -> int:
            return sum(len(resource.acls) for resource in self._ask(Key.DESCRIBE_ACLS, 3, **every).resources)

        eventually("the broker has all ACLs", lambda: count() == len(rows))

    def _resource_name(self, resource: Type, name: str) -> str:
        return self.world.token_ids.get(name, name) if resource is Type.DELEGATION_TOKEN else name


def deleted(answer: Any) -> list[str]:
    """Return the names of the topics that a DeleteTopics request deleted."""
    return [row.name for row in answer.responses if row.error_code == ErrorCode.NONE]
