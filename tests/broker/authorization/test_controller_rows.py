"""THE table of rights of a controller: each row with the right present, and taken away; direct and in an Envelope.

Also tests `controller/apis/config_rights.py`. Topics t and u: only the second is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.authorization import controller_rows as rights
from barnabas.broker.authorization.authorizer import Authorizer
from barnabas.broker.authorization.controller_rows import ROWS
from barnabas.broker.authorization.row import Answer, Row
from barnabas.broker.authorization.table import CONTROLLER_RIGHTS
from barnabas.broker.channels.forwarding import make_envelope
from barnabas.controller.apis.table import TABLE
from barnabas.controller.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import k19_create_topics as create
from barnabas.protocol.messages import k20_delete_topics as delete
from barnabas.protocol.messages import k32_describe_configs as describe
from barnabas.protocol.messages import k33_alter_configs as legacy
from barnabas.protocol.messages import k37_create_partitions as partitions
from barnabas.protocol.messages import k38_create_delegation_token as token
from barnabas.protocol.messages import k44_incremental_alter_configs as configs
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.messages.k41_describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.security.values import CLUSTER_NAME, ResourceType
from tests.broker.authorization import kit
from tests.broker.authorization.kit import ALICE, ROOT, make_request
from tests.broker.authorization.test_broker_rows import Found, row_id
from tests.controller.test_any_request import SIZE_PREFIX, Asker
from tests.support.broker.parked import Waiting

LOGGER_RESOURCE = 8
TOKENS = (rights.DESCRIBE_TOKEN, rights.DESCRIBE_TOKENS_OF)
SECOND = {
    ResourceType.TOPIC: "u",
    ResourceType.GROUP: "h",
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.USER: "User:bob",
}


def lacking(*rows: Row, name: str = "*") -> Authorizer:
    return kit.lacking(*rows, name=name, rights=CONTROLLER_RIGHTS)


class Controller:
    """A controller with topics t and u and an authorizer."""

    def __init__(self) -> None:
        self.asker = Asker(0)
        self.by: Authorizer | None = None
        self.is_logged_in = False

    def ask(self, message: Any, version: int, principal: str = ALICE) -> Any:
        """Carry a request out as the dispatcher does."""
        api = TABLE[message.API_KEY]
        request = make_request(message, version, principal)
        if self.is_logged_in:
            request.context = replace(request.context, security_protocol="SASL_PLAINTEXT")
        request.api = api  # type: ignore[assignment]
        if self.by is not None:
            assert self.by.admit(api, request) is None
        answer: Any = api.handle(self.asker.services, request)
        if hasattr(answer, "operation"):
            waiting = Waiting()
            waiting.wait(answer)
            self.asker.rig.controller.loop.step()
            answer = waiting.response
            if isinstance(answer, ApiError):
                raise answer
        else:
            answer = answer.message
        return response_class(message.API_KEY).decode(answer.encode(version), version)

    def forward(self, message: Any, version: int, client: str = ALICE, sender: str = ROOT) -> Any:
        """Carry a request out that a broker forwards; returns the client's response."""
        inner = make_request(message, version, client)
        frame = bytes(encode_request(RequestHeader(message.API_KEY, version, 7, "c"), message)[SIZE_PREFIX:])
        response = self.ask(make_envelope(frame, inner), 0, sender)
        assert response.error_code == 0
        data = memoryview(response.response_data)
        _, offset = decode_response_header(data, message.API_KEY, version)
        return response_class(message.API_KEY).decode(data, version, offset)


@pytest.fixture
def controller() -> Controller:
    return Controller()


# -- requests


def create_topics(controller: Controller) -> Any:
    by, controller.by = controller.by, None
    deleted(controller)
    controller.by = by
    topics = [create.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("t", "u")]
    return {t.name: t for t in controller.ask(create.CreateTopicsRequest(topics=topics, timeout_ms=1000), 7).topics}


def created(controller: Controller) -> Found:
    return {name: t.error_code for name, t in create_topics(controller).items()}


def seen_configs(controller: Controller) -> Found:
    return {name: 0 for name, t in create_topics(controller).items() if not t.topic_config_error_code and t.configs}


def deleted(controller: Controller) -> Found:
    message = delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(name=n) for n in ("t", "u")], timeout_ms=1000)
    return {r.name: r.error_code for r in controller.ask(message, 6).responses}


def grown(controller: Controller) -> Found:
    topics = [partitions.CreatePartitionsTopic(name=name, count=3, assignments=None) for name in ("t", "u")]
    answer = controller.ask(partitions.CreatePartitionsRequest(topics=topics, timeout_ms=1000), 3)
    return {r.name: r.error_code for r in answer.results}


def altered(wire: Any, kind: int, *names: str) -> Callable[[Controller], Found]:
    def alter(controller: Controller) -> Found:
        resources = [wire.AlterConfigsResource(resource_type=kind, resource_name=n, configs=[]) for n in names]
        request = legacy.AlterConfigsRequest if wire is legacy else configs.IncrementalAlterConfigsRequest
        answer = controller.ask(request(resources=resources), 1)
        found = {r.resource_name: r.error_code for r in answer.responses}
        return {CLUSTER_NAME: found["0"]} if kind == BROKER_RESOURCE else found

    return alter


def tokens(controller: Controller) -> Found:
    message = token.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    try:
        return {"User:bob": controller.ask(message, 3).error_code}
    except ApiError as error:
        return {"User:bob": error.code}


def operations(controller: Controller) -> Found:
    message = DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True)
    return {CLUSTER_NAME: 0} if controller.ask(message, 1).cluster_authorized_operations else {}


def described_configs(kind: int, *names: str) -> Callable[[Controller], Found]:
    def look(controller: Controller) -> Found:
        resources = [describe.DescribeConfigsResource(resource_type=kind, resource_name=name) for name in names]
        answer = controller.ask(describe.DescribeConfigsRequest(resources=resources), 4)
        found = {r.resource_name: r.error_code for r in answer.results}
        return {CLUSTER_NAME: found["100"]} if kind == BROKER_RESOURCE else found

    return look


def described_tokens(controller: Controller) -> Found:
    by, controller.by = controller.by, None
    message = token.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    assert controller.forward(message, 3, client="User:bob").error_code == 0
    controller.by, controller.is_logged_in = by, True
    answer = controller.ask(DescribeDelegationTokenRequest(owners=None), 3)
    return {f"User:{found.principal_name}": 0 for found in answer.tokens}


def altered_loggers(controller: Controller) -> Found:
    resource = configs.AlterConfigsResource(resource_type=LOGGER_RESOURCE, resource_name="100", configs=[])
    (found,) = controller.ask(configs.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return {CLUSTER_NAME: found.error_code}


SCENARIOS: dict[Row, Callable[[Controller], Found]] = {
    rights.SEE_CREATED_CONFIGS: seen_configs,
    rights.CREATE_PARTITIONS_TOPIC: grown,
    rights.REPLACE_TOPIC_CONFIGS: altered(legacy, TOPIC_RESOURCE, "t", "u"),
    rights.REPLACE_CLUSTER_CONFIGS: altered(legacy, BROKER_RESOURCE, "0"),
    rights.REPLACE_GROUP_CONFIGS: altered(legacy, GROUP_RESOURCE, "g", "h"),
    rights.ALTER_TOPIC_CONFIGS: altered(configs, TOPIC_RESOURCE, "t", "u"),
    rights.ALTER_CLUSTER_CONFIGS: altered(configs, BROKER_RESOURCE, "0"),
    rights.ALTER_GROUP_CONFIGS: altered(configs, GROUP_RESOURCE, "g", "h"),
    rights.DESCRIBE_TOPIC_CONFIGS: described_configs(TOPIC_RESOURCE, "t", "u"),
    rights.DESCRIBE_CLUSTER_CONFIGS: described_configs(BROKER_RESOURCE, "100"),
    rights.DESCRIBE_GROUP_CONFIGS: described_configs(GROUP_RESOURCE, "g", "h"),
    rights.ALTER_LOGGERS: altered_loggers,
    rights.CREATE_TOKEN: tokens,
    rights.DESCRIBE_CLUSTER_OPERATIONS: operations,
}
ALTERNATIVES: dict[Row, tuple[Row, Callable[[Controller], Found]]] = {
    rights.CREATE_TOPIC: (rights.CREATE_ANY_TOPIC, created),
    rights.DELETE_TOPIC: (rights.DELETE_ANY_TOPIC, deleted),
    rights.SEE_DELETED_TOPIC: (rights.DELETE_ANY_TOPIC, deleted),
}


def refusals(row: Row, found: Found) -> list[str]:
    if row.answer is Answer.LEFT_OUT:
        names = ["t", "u"] if row.resource is ResourceType.TOPIC else [CLUSTER_NAME]
        return [name for name in names if name not in found]
    return [name for name, code in found.items() if code == row.error]


@pytest.mark.parametrize("row", SCENARIOS, ids=row_id)
def test_an_item_is_refused_without_its_right_and_the_others_are_not(row: Row, controller: Controller) -> None:
    controller.by = lacking(row, name=SECOND[row.resource])
    assert refusals(row, SCENARIOS[row](controller)) == [SECOND[row.resource]]


@pytest.mark.parametrize("row", SCENARIOS, ids=row_id)
def test_no_item_is_refused_with_its_right(row: Row, controller: Controller) -> None:
    controller.by = lacking()
    assert refusals(row, SCENARIOS[row](controller)) == []


@pytest.mark.parametrize("row", ALTERNATIVES, ids=row_id)
@pytest.mark.parametrize("which", ["both", "the item's", "the cluster's", "none"])
def test_a_right_has_an_alternative(row: Row, which: str, controller: Controller) -> None:
    other, scenario = ALTERNATIVES[row]
    taken = {"both": [], "the item's": [other], "the cluster's": [row], "none": [row, other]}[which]
    controller.by = lacking(*taken, name=SECOND[row.resource])
    assert refusals(row, scenario(controller)) == (["u"] if which == "none" else [])


WHOLE = [row for row in ROWS if row.asks is not None and row.answer is Answer.REQUEST]
STANDS_FOR = {rights.DESCRIBE_CLUSTER: rights.DESCRIBE_CLUSTER_OF_ADMIN}


@pytest.mark.parametrize("row", WHOLE, ids=row_id)
def test_a_request_is_refused_without_its_right(row: Row) -> None:
    api: Any = SimpleNamespace(key=row.key, name=row.key.name)
    message = request_class(row.key)
    request = make_request(message(), TABLE[row.key].versions[1])
    stand_in = [STANDS_FOR[row]] if row in STANDS_FOR else []
    lacking(*stand_in).admit(api, request)
    if stand_in:
        lacking(row).admit(api, request)
    with pytest.raises(ApiError) as refused:
        lacking(row, *stand_in).admit(api, request)
    assert refused.value.code == row.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("which", ["both", "the token's", "the owner's", "none"])
def test_one_of_two_rights_shows_a_token_of_somebody_else(which: str, controller: Controller) -> None:
    of_token, of_owner = TOKENS
    taken = {"both": [], "the token's": [of_owner], "the owner's": [of_token], "none": [of_token, of_owner]}[which]
    controller.by = lacking(*taken)
    assert described_tokens(controller) == ({} if which == "none" else {"User:bob": 0})


def test_every_row_is_tested() -> None:
    others = {other for other, _ in ALTERNATIVES.values()}
    tested = {*SCENARIOS, *ALTERNATIVES, *others, *WHOLE, *STANDS_FOR.values(), *TOKENS}
    assert sorted(map(row_id, set(ROWS) - tested)) == []


# -- topics that are hidden


def test_who_may_not_describe_a_topic_does_not_learn_whether_it_exists(controller: Controller) -> None:
    controller.by = kit.authorizer([], default=False, rights=CONTROLLER_RIGHTS)
    names = [delete.DeleteTopicState(name=name) for name in ("t", "nowhere")]
    first, second = controller.ask(delete.DeleteTopicsRequest(topics=names, timeout_ms=1000), 6).responses
    assert (first.name, second.name) == ("t", "nowhere")
    second.name = first.name
    assert first == second


def test_a_topic_named_by_id_stays_nameless_to_who_may_not_describe_it(controller: Controller) -> None:
    topic_id = controller.asker.rig.image.topic("t").id
    message = delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1)
    controller.by = lacking(rights.DELETE_ANY_TOPIC, rights.DELETE_TOPIC, name="t")
    (found,) = controller.ask(message, 6).responses
    assert (found.name, found.error_code) == ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    controller.by = kit.authorizer([], default=False, rights=CONTROLLER_RIGHTS)
    (found,) = controller.ask(message, 6).responses
    assert (found.name, found.error_code) == (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_client_metrics_belong_to_the_cluster(controller: Controller) -> None:
    controller.by = lacking(rights.ALTER_CLUSTER_CONFIGS)
    found = altered(configs, CLIENT_METRICS_RESOURCE, "m")(controller)
    assert found == {"m": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


# -- the Envelope


def test_a_forwarded_request_is_authorized_as_that_of_the_client(controller: Controller) -> None:
    controller.by = lacking(rights.REASSIGN)
    message = request_class(45)(timeout_ms=1000)
    assert controller.forward(message, 1).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert controller.forward(message, 1, client=ROOT).error_code == 0


def test_the_items_of_a_forwarded_request_are_authorized_too(controller: Controller) -> None:
    controller.by = lacking(rights.CREATE_PARTITIONS_TOPIC, name="u")
    topics = [partitions.CreatePartitionsTopic(name=name, count=3, assignments=None) for name in ("t", "u")]
    answer = controller.forward(partitions.CreatePartitionsRequest(topics=topics, timeout_ms=1000), 3)
    assert {r.name: r.error_code for r in answer.results} == {"t": 0, "u": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_the_address_of_the_client_counts_not_that_of_the_broker(controller: Controller) -> None:
    controller.by = lacking()
    denied = kit.denied(rights.REASSIGN)._replace(host=kit.HOST, id=b"host")
    controller.by.take({acl.id: acl for acl in [*(controller.by.rules.acls or ()), denied]})
    message = request_class(45)(timeout_ms=1000)
    assert controller.forward(message, 1).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_only_a_node_may_forward(controller: Controller) -> None:
    controller.by = lacking(rights.ENVELOPE)
    with pytest.raises(ApiError) as refused:
        controller.forward(request_class(45)(timeout_ms=1000), 1, client=ROOT, sender=ALICE)
    assert refused.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
