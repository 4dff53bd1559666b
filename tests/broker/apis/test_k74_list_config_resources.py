"""ListConfigResources: by type, and what v0 means."""

from __future__ import annotations

from typing import Any

from barnabas.broker.apis.k74_list_config_resources import API
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k74_list_config_resources import ListConfigResourcesRequest
from tests.broker.apis.config_rig import answer_of, make_services, set_configs
from tests.support.broker.broker_rig import BrokerRig, registration


def listed(*types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    services = make_services()
    set_configs(services, ResourceType.GROUP, "g", consumer_session_timeout_ms="46000")
    set_configs(services, ResourceType.CLIENT_METRICS, "m", interval_ms="1000")
    request = ListConfigResourcesRequest(resource_types=list(types) if version else [])
    response: Any = answer_of(API, services, request, version)
    return response.error_code, [(r.resource_type, r.resource_name) for r in response.config_resources]


def test_all_types() -> None:
    assert listed() == (
        0,
        [(2, "a"), (2, "b"), (4, "1"), (4, "2"), (8, "1"), (8, "2"), (16, "m"), (32, "g")],
    )


def test_a_fenced_broker_keeps_its_settings() -> None:
    rig = BrokerRig()
    rig.answer(
        rig.update_metadata({}, registrations=[registration(i, fenced=i == 2) for i in (1, 2, 3)], brokers=[3, 1]), 8
    )
    for type_ in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        response = rig.answer(ListConfigResourcesRequest(resource_types=[type_]), 1)
        assert [r.resource_name for r in response.config_resources] == ["1", "2", "3"]
    rig.close()


def test_some_types() -> None:
    assert listed(ResourceType.GROUP, ResourceType.GROUP) == (0, [(32, "g")])
    assert listed(version=0) == (0, [(16, "m")])
    assert listed(3) == (ErrorCode.UNSUPPORTED_VERSION, [])
