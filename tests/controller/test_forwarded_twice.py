"""A broker sends a request again, to the same controller or to the next one: it is carried out once.

Covers `controller/apis/services.py`, and by their requests all APIs that brokers forward.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest

from barnabas.controller.apis.table import TABLE
from barnabas.controller.decision import Decision
from barnabas.controller.forwarded.answers import Answers
from barnabas.controller.image import Image
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages import k19_create_topics as create_wire
from barnabas.protocol.messages import k20_delete_topics as delete_wire
from barnabas.protocol.messages import k33_alter_configs as replace_wire
from barnabas.protocol.messages import k37_create_partitions as grow_wire
from barnabas.protocol.messages import k38_create_delegation_token as token_wire
from barnabas.protocol.messages import k39_renew_delegation_token as renew_wire
from barnabas.protocol.messages import k40_expire_delegation_token as expire_wire
from barnabas.protocol.messages import k43_elect_leaders as elect_wire
from barnabas.protocol.messages import k44_incremental_alter_configs as configs_wire
from barnabas.protocol.messages import k45_alter_partition_reassignments as move_wire
from barnabas.protocol.messages import k57_update_features as features_wire
from barnabas.protocol.messages import k64_unregister_broker as unregister_wire
from barnabas.protocol.metadata_records import PartitionChangeRecord
from barnabas.protocol.push_tags import Attempt
from tests.controller.fake_quorum import QuorumRig
from tests.controller.rig import topic
from tests.controller.test_any_request import SECURITY, Asker
from tests.controller.test_security_apis import acl, all_acls, quota, user
from tests.support.broker.parked import Waiting

SENDER, OTHER = b"s" * 16, b"o" * 16
EXISTS, UNKNOWN = ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Cluster:
    """Three controllers with their APIs, and a broker that forwards to them."""

    def __init__(self) -> None:
        self.quorum = QuorumRig(**SECURITY)
        self.askers = {node_id: Asker(node_id, rig) for node_id, rig in self.quorum.rigs.items()}
        self.quorum.step()

    @property
    def image(self) -> Image:
        """What is committed, according to the active controller."""
        image: Image = self.quorum.active.image
        return image

    def send(
        self, message: Any, number: int, nth: int = 1, *, sender: bytes = SENDER, token_id: bytes | None = None
    ) -> Any:
        """Forward an attempt to the active controller."""
        header = RequestHeader(message.API_KEY, TABLE[message.API_KEY].versions[1], 7, "c")
        asker = self.askers[self.quorum.active.controller.node_id]
        answer = asker.forward(header, message, Attempt(sender, number, nth), token_id)
        self.quorum.step()
        return answer


def creation(*names: str, **about: Any) -> create_wire.CreateTopicsRequest:
    return create_wire.CreateTopicsRequest(topics=[topic(name, 2, 2) for name in names], timeout_ms=1000, **about)


def deletion(*names: str) -> delete_wire.DeleteTopicsRequest:
    topics = [delete_wire.DeleteTopicState(name=name) for name in names]
    return delete_wire.DeleteTopicsRequest(topics=topics, timeout_ms=1000)


def configs(name: str, value: str, operation: int = 0) -> configs_wire.IncrementalAlterConfigsRequest:
    change = configs_wire.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = configs_wire.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    return configs_wire.IncrementalAlterConfigsRequest(resources=[resource])


def replacement() -> replace_wire.AlterConfigsRequest:
    change = replace_wire.AlterableConfig(name="retention.ms", value="7")
    resource = replace_wire.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    return replace_wire.AlterConfigsRequest(resources=[resource])


def more_partitions() -> grow_wire.CreatePartitionsRequest:
    return grow_wire.CreatePartitionsRequest(
        topics=[grow_wire.CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=1000
    )


def move() -> move_wire.AlterPartitionReassignmentsRequest:
    partition = move_wire.ReassignablePartition(partition_index=0, replicas=[2, 0])
    return move_wire.AlterPartitionReassignmentsRequest(
        topics=[move_wire.ReassignableTopic(name="t", partitions=[partition])]
    )


def upgrade() -> features_wire.UpdateFeaturesRequest:
    update = features_wire.FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=3)
    return features_wire.UpdateFeaturesRequest(feature_updates=[update])


def election() -> elect_wire.ElectLeadersRequest:
    return elect_wire.ElectLeadersRequest(
        election_type=0, topic_partitions=[elect_wire.TopicPartitions(topic="t", partitions=[0])]
    )


CHANGES: dict[int, Any] = {
    19: creation("new"),
    20: deletion("t"),
    30: acl(),
    31: all_acls(),
    33: replacement(),
    37: more_partitions(),
    38: token_wire.CreateDelegationTokenRequest(max_lifetime_ms=-1),
    39: renew_wire.RenewDelegationTokenRequest(renew_period_ms=1),
    40: expire_wire.ExpireDelegationTokenRequest(expiry_time_period_ms=-1),
    43: election(),
    44: configs("cleanup.policy", "delete", 2),
    45: move(),
    49: quota({"user": "alice"}),
    51: user("alice"),
    57: upgrade(),
    64: unregister_wire.UnregisterBrokerRequest(broker_id=1),
}
#: Those that read, and changes of the quorum's voters, which are not records of the metadata.
NOT_DECIDED = {
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
}  # fmt: skip


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.send(acl("before"), 1, sender=OTHER)
    token = made.send(CHANGES[38], 2, sender=OTHER)
    CHANGES[39].hmac = CHANGES[40].hmac = token.hmac
    return made


def without_answers(image: Image) -> Image:
    return replace(image, answers=Answers(), offset=0)


def test_every_change_that_is_forwarded_is_tried_here() -> None:
    assert {key for key, api in TABLE.items() if api.is_forwarded} - NOT_DECIDED == CHANGES.keys()


def let_another_lead(cluster: Cluster) -> None:
    """Fence the preferred leader of a partition, which then is in the ISR again and does not lead."""
    active = cluster.quorum.active
    active.heartbeat(0, want_fence=True)
    active.heartbeat(0)
    record = PartitionChangeRecord(partition_id=0, topic_id=active.image.topic("t").id, isr=[0, 1])
    active.decide(lambda _: Decision([record], None))
    cluster.quorum.step()


@pytest.mark.parametrize("key", CHANGES)
@pytest.mark.parametrize("next_id", [100, 101])
def test_a_change_is_made_once(cluster: Cluster, key: int, next_id: int) -> None:
    if key == ApiKey.ELECT_LEADERS:
        let_another_lead(cluster)
    before = cluster.image
    first = cluster.send(CHANGES[key], 1)
    after = cluster.image
    assert without_answers(after) != without_answers(before)
    assert len(after.answers) == 2
    cluster.quorum.elect(next_id)
    again = cluster.send(CHANGES[key], 1, 2)
    if key == ApiKey.CREATE_DELEGATION_TOKEN:  # without the id that a broker draws, it is only not made again
        assert again.error_code == ErrorCode.REQUEST_TIMED_OUT
    else:
        assert again == first
    assert without_answers(cluster.image) == without_answers(after)
    assert all(rig.image.answers == after.answers for rig in cluster.quorum.rigs.values())


def test_a_topic_that_somebody_else_created_again_is_not_deleted(cluster: Cluster) -> None:
    cluster.send(creation("new"), 1)
    first = cluster.send(deletion("new"), 2)
    (made,) = cluster.send(creation("new"), 3, sender=OTHER).topics
    cluster.quorum.elect(101)
    assert cluster.send(deletion("new"), 2, 2) == first
    found = cluster.image.topic("new")
    assert found is not None
    assert found.id == made.topic_id


def test_a_value_that_somebody_else_set_stays(cluster: Cluster) -> None:
    cluster.send(configs("retention.ms", "1"), 1)
    cluster.send(configs("retention.ms", "2"), 3, sender=OTHER)
    cluster.quorum.elect(101)
    assert cluster.send(configs("retention.ms", "1"), 1, 2).responses[0].error_code == 0
    assert cluster.image.resource_configs(2, "t")["retention.ms"] == "2"


def test_a_request_that_is_refused_in_part_gets_the_same_answer(cluster: Cluster) -> None:
    first = cluster.send(creation("t", "new"), 1)
    assert [each.error_code for each in first.topics] == [EXISTS, 0]
    cluster.send(deletion("t", "new"), 3, sender=OTHER)
    cluster.quorum.elect(101)
    assert cluster.send(creation("t", "new"), 1, 2) == first
    assert cluster.image.topic("new") is None


def test_what_changed_nothing_is_decided_again(cluster: Cluster) -> None:
    trial = creation("new", validate_only=True)
    assert [cluster.send(trial, 1, nth).topics[0].error_code for nth in (1, 2)] == [0, 0]
    assert cluster.send(creation("t"), 2).topics[0].error_code == EXISTS
    assert len(cluster.image.answers) == 1
    cluster.send(deletion("t"), 3, sender=OTHER)
    assert cluster.send(creation("t"), 2, 2).topics[0].error_code == 0


def test_what_comes_late_is_not_carried_out(cluster: Cluster) -> None:
    assert cluster.send(deletion("new"), 1, 2).responses[0].error_code == UNKNOWN
    cluster.send(creation("new"), 3, sender=OTHER)
    assert cluster.send(deletion("new"), 1, 1).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    cluster.send(configs("retention.ms", "1"), 2)
    cluster.quorum.elect(101)
    assert cluster.send(deletion("new"), 1, 3).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert cluster.image.topic("new") is not None


def test_what_came_before_the_lead_was_lost_is_not_carried_out_after_it_is_back(cluster: Cluster) -> None:
    first, other = cluster.askers[100], cluster.askers[101]
    request = first.envelope(RequestHeader(20, 6, 7, "c"), deletion("new"), Attempt(SENDER, 1))
    waiting = Waiting(request)
    waiting.wait(TABLE[ApiKey.ENVELOPE].handle(first.services, request))
    cluster.quorum.quorum.elect(101)  # while the event thread of the first one does something else
    other.rig.controller.loop.step()
    refused = other.forward(RequestHeader(20, 6, 7, "c"), deletion("new"), Attempt(SENDER, 1, 2))
    assert refused.responses[0].error_code == UNKNOWN
    other.forward(RequestHeader(19, 7, 7, "c"), creation("new"), Attempt(OTHER, 3))
    cluster.quorum.elect(100)
    assert isinstance(waiting.response, ApiError)
    assert waiting.response.code is ErrorCode.NOT_CONTROLLER
    assert cluster.image.topic("new") is not None


def test_without_a_number_nothing_is_remembered() -> None:
    asker = Asker(0)
    header = RequestHeader(19, 7, 7, "c")
    assert [asker.forward(header, creation("new")).topics[0].error_code for _ in range(2)] == [0, EXISTS]
    assert len(asker.rig.image.answers) == 0


def submit(cluster: Cluster, message: Any, nth: int) -> Waiting:
    """Forward an attempt as request 1, and return what waits for its answer."""
    asker = cluster.askers[cluster.quorum.active.controller.node_id]
    header = RequestHeader(message.API_KEY, TABLE[message.API_KEY].versions[1], 7, "c")
    request = asker.envelope(header, message, Attempt(SENDER, 1, nth))
    waiting = Waiting(request)
    waiting.wait(TABLE[ApiKey.ENVELOPE].handle(asker.services, request))
    asker.rig.controller.loop.step()
    return waiting


def test_what_a_handler_holds_while_the_lead_goes_and_comes_back_is_not_carried_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: object) -> list[object]:
        cluster.quorum.elect(101)
        cluster.quorum.elect(100)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    waiting = submit(cluster, quota({"ip": "slow.example"}), 1)
    assert isinstance(waiting.response, ApiError)
    assert waiting.response.code is ErrorCode.NOT_CONTROLLER
    assert not cluster.image.security.quotas


def test_one_in_flight_is_answered_together_with_the_first(cluster: Cluster) -> None:
    cluster.quorum.quorum.is_automatic = False
    waiting = [submit(cluster, creation("new"), nth) for nth in (1, 2)]
    assert [each.response for each in waiting] == [None, None]
    cluster.quorum.commit()
    first, second = (each.response for each in waiting)
    assert first.response_data == second.response_data
    assert first.error_code == second.error_code == 0
    made = cluster.image.topic("new")
    assert made is not None
    assert made.id in first.response_data


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_next_controller_knows_what_was_committed(cluster: Cluster, is_kept: bool) -> None:
    cluster.quorum.quorum.is_automatic = False
    waiting = submit(cluster, creation("new"), 1)
    made = cluster.quorum[100].controller.image.topic("new")
    assert made is not None
    cluster.quorum.elect(101, keeps=int(is_kept))
    assert isinstance(waiting.response, ApiError)
    assert waiting.response.code is ErrorCode.NOT_CONTROLLER
    cluster.quorum.quorum.is_automatic = True
    (answer,) = cluster.send(creation("new"), 1, 2).topics
    assert answer.error_code == 0
    assert (answer.topic_id == made.id) == is_kept
    found = cluster.image.topic("new")
    assert found is not None
    assert found.id == answer.topic_id


def test_a_snapshot_has_the_answers() -> None:
    asker = Asker(0)
    header = RequestHeader(20, 6, 7, "c")
    first = asker.forward(header, deletion("t"), Attempt(SENDER, 5))
    asker.mend()
    rig = asker.rig
    rig.controller._snapshot_bytes = 1
    rig.controller.loop.step()
    after = Asker(0, rig.restart())
    assert after.rig.controller._log_bytes < 1_000, "the log was replaced"
    assert after.forward(header, deletion("t"), Attempt(SENDER, 5, 2)) == first
    assert after.rig.image.topic("t") is not None


def test_a_second_attempt_is_not_charged() -> None:
    asker = Asker(0)
    limit = quota({"user": "a"})
    limit.entries[0].ops[0].key = "controller_mutation_rate"
    asker.ask(RequestHeader(49, 1, 7, "c"), limit)
    header = RequestHeader(19, 7, 7, "c")
    for name in ("a", "b"):
        first = asker.forward(header, creation(name), Attempt(SENDER, ord(name)))
        assert [each.error_code for each in first.topics] == [0]
    for nth in range(2, 20):
        again = asker.forward(header, creation("b"), Attempt(SENDER, ord("b"), nth))
        assert (again.topics[0].error_code, again.throttle_time_ms) == (0, 0)


def test_a_token_is_made_once_and_its_secret_is_not_in_the_log(cluster: Cluster) -> None:
    def send(nth: int) -> Any:
        return cluster.send(CHANGES[38], 1, nth, token_id=b"t" * 16)

    first = send(1)
    cluster.quorum.elect(101)
    assert send(2) == first
    assert (first.error_code, len(first.hmac) > 0) == (0, True)
    assert all(first.hmac not in bytes(batch.data) for batch in cluster.quorum.quorum.committed)
    expiry = expire_wire.ExpireDelegationTokenRequest(hmac=first.hmac, expiry_time_period_ms=-1)
    assert cluster.send(expiry, 4, sender=OTHER).error_code == 0
    assert send(3).error_code == ErrorCode.REQUEST_TIMED_OUT, "it was made, and is gone"
    assert len(cluster.image.security.tokens) == 1
