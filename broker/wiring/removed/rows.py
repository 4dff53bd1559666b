"""The rows of the API table with the versions that Kafka 4.0 removed.

Only clients may use these versions. A node that sends one has its connection closed, as by every other broker.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from barnabas.broker.requests.answers import Close
from barnabas.broker.wiring.removed import fetch, list_offsets, others, produce
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.messages import request_class
from barnabas.protocol.removed import highest_removed, removed_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.schema import Message

CarryOut: TypeAlias = "Callable[[Api, Any, Request], Answer]"

#: The APIs whose removed versions take more than another message.
HANDLERS: Final[dict[int, CarryOut]] = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
}


def with_removed_versions(api: Api) -> Api:
    """Return the row with the versions from 0 on; the row itself if 4.0 removed none."""
    highest = highest_removed(api.key)
    if highest < 0:
        return api
    carry_out: CarryOut = HANDLERS.get(api.key, others.handle)
    lower = others.to_removed_of(api.key)
    make_error = api.error_response or error_response

    def decoder(version: int) -> Callable[[Any, int], tuple[Any, int]]:
        found: type[Message] = removed_request(api.key) if version <= highest else request_class(api.key)
        return found.decoder(version)

    def handle(services: Any, request: Request) -> Answer:
        version = request.header.api_version
        if version > highest:
            return api.handle(services, request)
        if not request.context.is_for_clients:
            return Close(f"{api.name} v{version} is served to clients only (barnabas.compat.release)")
        return carry_out(api, services, request)

    def failed(request: Message, version: int, code: int, message: str | None) -> Message:
        response = make_error(request, version, code, message)
        return lower(response) if version <= highest else response

    return dataclasses.replace(
        api, versions=(0, api.versions[1]), handle=handle, error_response=failed, decoder=decoder
    )
