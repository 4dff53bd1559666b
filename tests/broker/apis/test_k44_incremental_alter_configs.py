"""IncrementalAlterConfigs: what the broker decides itself, and what it forwards.

Also covers `apis/altering.py` and `settings/config_changes.py`.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.broker.apis.k44_incremental_alter_configs import API
from barnabas.broker.requests.parking import Park
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.common.logs import LINES_MAX
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import decode_request_header, response_parts
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.k58_envelope import EnvelopeResponse
from tests.broker.apis.config_rig import answer_of, make_request, make_services, set_configs

SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(type_: int, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=type_,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=operation, value=text) for key, operation, text in changes],
    )


def request(*resources: AlterConfigsResource, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)


def refusal(services: Any, asked: AlterConfigsResource) -> tuple[int, str | None]:
    (response,) = answer_of(API, services, request(asked)).responses
    return response.error_code, response.error_message


@pytest.mark.parametrize(
    ("type_", "name", "change", "code", "message"),
    [
        (ResourceType.BROKER, "1", ("num.partitions", SET, "4"), 42, "Cannot update these configs dynamically: ["),
        (ResourceType.BROKER, "2", ("log.segment.bytes", SET, "2000000"), 42, "Unexpected broker id, expected 1, but"),
        (
            ResourceType.BROKER,
            "x",
            ("log.segment.bytes", SET, "2000000"),
            42,
            "Node id must be an integer, but it is: x",
        ),
        (ResourceType.BROKER, "1", ("log.segment.bytes", SET, "1"), 42, "Value must be at least 1048576"),
        (ResourceType.BROKER, "", ("log.cleaner.min.compaction.lag.ms", SET, "x"), 42, "Not a number of type LONG"),
        (ResourceType.BROKER, "1", ("log.segment.bytes", APPEND, "1"), 40, "Config value append is not allowed"),
        (ResourceType.BROKER, "1", ("log.segment.bytes", 9, "1"), 42, "Unknown operations type 9"),
        (ResourceType.TOPIC, "a", ("retention.ms", SET, None), 42, "Null value not supported for : retention.ms"),
        (ResourceType.BROKER_LOGGER, "2", ("root", SET, "INFO"), 42, "Unexpected broker id"),
        (ResourceType.BROKER_LOGGER, "1", ("no.such", SET, "INFO"), 40, "Logger no.such does not exist!"),
        (ResourceType.BROKER_LOGGER, "1", ("root", SET, "LOUD"), 40, "Cannot set the log level of root to LOUD"),
        (ResourceType.BROKER_LOGGER, "1", ("root", SET, "debug"), 40, "Cannot set the log level of root to debug"),
        (ResourceType.BROKER_LOGGER, "1", ("root", DELETE, None), 42, "Removing the log level of the root logger"),
        (ResourceType.BROKER_LOGGER, "1", ("root", APPEND, "INFO"), 42, "APPEND operation is not allowed for the"),
        (77, "x", ("a", SET, "b"), 42, "Unknown resource type 77"),
    ],
)
def test_refusals(type_: int, name: str, change: tuple[str, int, str | None], code: int, message: str) -> None:
    services = make_services()
    found, text = refusal(services, resource(type_, name, change))
    assert found == code
    assert message in str(text)
    assert services.channel.sent == []


def test_refused_changes_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    same = [resource(ResourceType.TOPIC, "a", ("retention.ms", SET, "1"))] * (LINES_MAX + 20)
    answer_of(API, make_services(), request(*same))
    assert len(caplog.messages) == LINES_MAX


def test_contradictions() -> None:
    services = make_services()
    twice = [resource(ResourceType.TOPIC, "a", ("retention.ms", SET, "1"))] * 2
    responses = answer_of(API, services, request(*twice)).responses
    assert [r.error_message for r in responses] == ["Each resource must appear at most once."] * 2
    doubled = resource(ResourceType.TOPIC, "a", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    assert refusal(services, doubled) == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def test_levels_of_loggers_change_at_once_unless_only_validated() -> None:
    services, logger = make_services(), logging.getLogger("barnabas.test.alter")
    logger.setLevel(logging.WARNING)
    change = resource(ResourceType.BROKER_LOGGER, "1", ("barnabas.test.alter", SET, "DEBUG"))
    assert answer_of(API, services, request(change, validate_only=True)).responses[0].error_code == 0
    assert logger.level == logging.WARNING
    assert answer_of(API, services, request(change)).responses[0].error_code == 0
    assert logger.level == logging.DEBUG
    back = resource(ResourceType.BROKER_LOGGER, "1", ("barnabas.test.alter", DELETE, None))
    assert answer_of(API, services, request(back)).responses[0].error_code == 0
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize("version", [0, 1])
def test_the_rest_is_forwarded_and_the_responses_are_merged(version: int) -> None:
    services = make_services()
    set_configs(services, ResourceType.BROKER, "", log_cleanup_policy="delete")
    bad = resource(ResourceType.BROKER, "1", ("num.partitions", SET, "4"))
    topic = resource(ResourceType.TOPIC, "a", ("retention.ms", SET, "1"))
    brokers = resource(ResourceType.BROKER, "", ("log.cleanup.policy", APPEND, "compact"))
    asked = make_request(API, request(topic, bad, brokers), version)
    answer = API.handle(services, asked)
    assert isinstance(answer, Park)
    ((envelope, on_done),) = services.channel.sent
    frame = memoryview(envelope.request_data)
    header, offset = decode_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id) == (44, version, 7)
    inner = IncrementalAlterConfigsRequest.decode(frame, version, offset)
    assert inner == request(topic, brokers)
    reply = IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(resource_type=r.resource_type, resource_name=r.resource_name)
            for r in inner.resources
        ]
    )
    parts = response_parts(header, reply)
    on_done(EnvelopeResponse(response_data=b"".join(bytes(part) for part in parts)[4:]))
    reply: Any = answer.answer()
    assert [(r.resource_type, r.resource_name, r.error_code) for r in reply.message.responses] == [
        (ResourceType.TOPIC, "a", 0),
        (ResourceType.BROKER, "1", 42),
        (ResourceType.BROKER, "", 0),
    ]


@pytest.mark.parametrize(
    ("owner", "stored", "text"),
    [
        ("1", "num.partitions", "5"),  # takes a restart
        ("1", "log.cleaner.dedupe.buffer.size", "many"),  # not a number
        ("1", "ssl.keystore.location", "/k"),  # only with the prefix of a listener
        ("", "listener.name.plaintext.ssl.keystore.location", "/k"),  # only for one broker
    ],
)
def test_an_unusable_setting_that_a_controller_accepted_blocks_no_other_change(
    owner: str, stored: str, text: str
) -> None:
    services = make_services()
    set_configs(services, ResourceType.BROKER, owner, **{stored: text})
    for name in ("1", ""):
        change = resource(ResourceType.BROKER, name, ("log.cleaner.threads", SET, "2"))
        assert isinstance(API.handle(services, make_request(API, request(change))), Park)
    again = resource(ResourceType.BROKER, owner, (stored, SET, text))
    assert refusal(services, again)[0] == ErrorCode.INVALID_REQUEST


def test_a_controller_that_does_not_answer() -> None:
    services = make_services()
    bad = resource(ResourceType.BROKER, "1", ("num.partitions", SET, "4"))
    topic = resource(ResourceType.TOPIC, "a", ("retention.ms", SET, "1"))
    answer = API.handle(services, make_request(API, request(bad, topic)))
    assert isinstance(answer, Park)
    services.channel.sent[0][1](None)
    reply: Any = answer.answer()
    assert [r.error_code for r in reply.message.responses] == [42, ErrorCode.REQUEST_TIMED_OUT]
