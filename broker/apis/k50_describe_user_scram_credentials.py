"""DescribeUserScramCredentials: v0-v0

Behaviour: lists the SCRAM mechanisms and iterations of users, never salts or keys. `users` null or empty asks for all.
This broker answers from what the controller pushed to it.

Errors: RESOURCE_NOT_FOUND (a named user without credentials), DUPLICATE_RESOURCE (a user named twice).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.errors import ErrorCode, message_that_fits
from barnabas.protocol.messages.k50_describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request
    from barnabas.security.image import SecurityImage


def handle(services: Services, request: Request) -> Reply:
    """Return the users' mechanisms."""
    return answer(request, services.security.image)


def answer(request: Request, image: SecurityImage) -> Reply:
    """Return the users' mechanisms in an image; also for controllers."""
    message: DescribeUserScramCredentialsRequest = request.message
    known: dict[str, list[CredentialInfo]] = {}
    for key, credential in sorted(image.credentials.items()):
        info = CredentialInfo(mechanism=key.mechanism, iterations=credential.iterations)
        known.setdefault(key.user, []).append(info)
    named = [user.name for user in message.users or ()] or list(known)
    counts: dict[str, int] = {}
    for name in named:
        counts[name] = counts.get(name, 0) + 1
    results = [_result(name, known.get(name), is_duplicate=count > 1) for name, count in counts.items()]
    return Reply(DescribeUserScramCredentialsResponse(results=results))


def _result(name: str, infos: list[CredentialInfo] | None, *, is_duplicate: bool) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name)
    if is_duplicate:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        text = "Cannot describe SCRAM credentials for the same user twice in a single request: "
        result.error_message = message_that_fits(text + name)
    elif infos is None:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        text = "Attempt to describe a user credential that does not exist: "
        result.error_message = message_that_fits(text + name)
    else:
        result.credential_infos = infos
    return result


API = Api(50, "DescribeUserScramCredentials", (0, 0), handle)
