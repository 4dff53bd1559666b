"""AlterConfigs: what the broker refuses itself; the rest is forwarded unchanged. Also covers `apis/altering.py`."""

from __future__ import annotations

import pytest

from barnabas.broker.apis.k33_alter_configs import API
from barnabas.broker.requests.parking import Park
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.protocol.messages.k33_alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tests.broker.apis.config_rig import answer_of, make_request, make_services


def request(type_: int, name: str, **texts: str | None) -> AlterConfigsRequest:
    configs = [AlterableConfig(name=key.replace("_", "."), value=text) for key, text in texts.items()]
    return AlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)]
    )


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request(ResourceType.BROKER, "1", num_partitions="4"), "Cannot update these configs dynamically: ["),
        (
            request(ResourceType.BROKER, "9", log_segment_bytes="2000000"),
            "Unexpected broker id, expected 1, but received 9",
        ),
        (request(ResourceType.TOPIC, "a", retention_ms=None), "Null value not supported for : retention.ms"),
        (request(ResourceType.BROKER_LOGGER, "1", root="INFO"), "Unknown resource type 8"),
    ],
)
def test_refusals(asked: AlterConfigsRequest, message: str, version: int) -> None:
    (response,) = answer_of(API, make_services(), asked, version).responses
    assert response.error_code == 42
    assert message in str(response.error_message)


def test_the_rest_is_forwarded() -> None:
    services = make_services()
    answer = API.handle(services, make_request(API, request(ResourceType.TOPIC, "a", retention_ms="1")))
    assert isinstance(answer, Park)
    assert len(services.channel.sent) == 1
