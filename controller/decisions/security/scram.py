"""AlterUserScramCredentials: users and their passwords.

A client sends salted passwords. The log keeps the keys that are derived from them (RFC 5802), so it holds no password.
With the first user, it gets the secret of false salts (SecurityImage, rule 4).

Source: ScramControlManager (Kafka 4.3).
"""

from __future__ import annotations

import os
from typing import Final

from barnabas.controller.decision import Decision, Failure, View, check_item_count
from barnabas.controller.image import METADATA_VERSION
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k51_alter_user_scram_credentials as wire
from barnabas.protocol.metadata_records import MetadataRecord, RemoveUserScramCredentialRecord
from barnabas.security.image import FALSE_SALTS, SecurityImage, credential_record
from barnabas.security.sasl.scram.formulas import credential_of
from barnabas.security.values import (
    SCRAM_MAX_ITERATIONS,
    SCRAM_MIN_ITERATIONS,
    ScramCredential,
    ScramKey,
    ScramMechanism,
)

VERSION_3_5_IV2: Final = 11  # the first version with SCRAM credentials
_SECRET_BYTES: Final = 32

Alteration = wire.ScramCredentialDeletion | wire.ScramCredentialUpsertion


def alter_scram_credentials(
    view: View, request: wire.AlterUserScramCredentialsRequest
) -> Decision[wire.AlterUserScramCredentialsResponse]:
    """Set and remove credentials. A user that the request names twice fails, and keeps what it has."""
    check_item_count(len(request.deletions) + len(request.upsertions))
    accepted: dict[str, Alteration] = {}
    failures: dict[str, Failure] = {}
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    for alteration in alterations:
        name = alteration.name
        if name in failures:
            continue
        failure: Failure | None
        if accepted.pop(name, None) is not None:
            failure = Failure(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        else:
            failure = _failure(view, alteration)
        if failure is None:
            accepted[name] = alteration
        else:
            failures[name] = failure
    records = [_record(alteration) for alteration in accepted.values()]
    if any(isinstance(alteration, wire.ScramCredentialUpsertion) for alteration in accepted.values()):
        records += missing_false_salts(view.image.security)
    results = [wire.AlterUserScramCredentialsResult(user=name, error_message=None) for name in accepted]
    results += [
        wire.AlterUserScramCredentialsResult(user=name, error_code=failure.code, error_message=failure.message)
        for name, failure in failures.items()
    ]
    return Decision(records, wire.AlterUserScramCredentialsResponse(results=results))


def missing_false_salts(security: SecurityImage) -> list[MetadataRecord]:
    """Return the record of a new secret of false salts, if the log lacks one; needed once there are users."""
    if security.false_salts is not None:
        return []
    credential = ScramCredential(
        os.urandom(_SECRET_BYTES), os.urandom(_SECRET_BYTES), os.urandom(_SECRET_BYTES), SCRAM_MIN_ITERATIONS
    )
    return [credential_record(FALSE_SALTS, credential)]


def _failure(view: View, alteration: Alteration) -> Failure | None:
    """Return why an alteration is refused, None if it is not."""
    mechanism = ScramMechanism.of(alteration.mechanism)
    if view.image.features.get(METADATA_VERSION, 0) < VERSION_3_5_IV2:
        return Failure(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not alteration.name:
        return Failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is ScramMechanism.UNKNOWN:
        return Failure(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(alteration, wire.ScramCredentialDeletion):
        if ScramKey(alteration.name, mechanism) not in view.image.security.credentials:
            text = "Attempt to delete a user credential that does not exist"
            return Failure(ErrorCode.RESOURCE_NOT_FOUND, text)
        return None
    if alteration.name == FALSE_SALTS.user:
        return Failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "This username is reserved")
    if alteration.iterations < SCRAM_MIN_ITERATIONS:
        return Failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if alteration.iterations > SCRAM_MAX_ITERATIONS:
        return Failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not alteration.salted_password:
        return Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "Empty key")  # as the JVM refuses it
    return None


def _record(alteration: Alteration) -> MetadataRecord:
    if isinstance(alteration, wire.ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=alteration.name, mechanism=alteration.mechanism)
    mechanism = ScramMechanism.of(alteration.mechanism)
    salted, salt = bytes(alteration.salted_password), bytes(alteration.salt)
    credential = credential_of(mechanism, salted, salt, alteration.iterations)
    return credential_record(ScramKey(alteration.name, mechanism), credential)
