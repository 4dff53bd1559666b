"""The common part of the APIs that change or read security metadata.

Changes are forwarded to the controller. The response is sent when this broker has the change, so that a client that
asks the same broker next finds it (as for topics; a KRaft broker answers before).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.answers import Close
from barnabas.broker.requests.request import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.parking import Park
    from barnabas.broker.requests.request import Request


def forward(services: Services, request: Request) -> Park:
    """Forward a change to the controller; wait until its effect is in this broker's metadata."""
    return services.forwarding.forward(request, has_metadata=lambda offset: services.metadata_cache.offset >= offset)


def may_use_tokens(request: Request) -> bool:
    """Return whether a client may create, change or describe delegation tokens: only if it authenticated without one.

    Source: KafkaApis.allowTokenRequests (Kafka 4.3).
    """
    protocol = request.security_protocol
    if request.context.is_token_authenticated or protocol == "PLAINTEXT":
        return False
    return not (protocol == "SSL" and request.principal == ANONYMOUS)


def closes_at_zero(request: Request, codes: Iterable[int]) -> Close | None:
    """Return how a request about ACLs ends that has a code 0, None if it has none.

    No client writes that code. Other codes that this release does not know are answered.

    Source: CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest (Kafka 4.3), which cannot be parsed with it.
    """
    api = request.api
    return Close(f"{'ACLs' if api is None else api.name} with an element of code 0") if 0 in codes else None
