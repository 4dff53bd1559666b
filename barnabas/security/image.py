"""SecurityImage: the security metadata as the records of the metadata log define it.

The controller's image contains one. Each broker has another, which follows by the pushes (the same records). Both are
built by `SecurityEditor`, and can be turned back into records.

Rules
1. A `SecurityImage` never changes, so any thread may keep and read it without a lock.
2. An editor copies only the maps that records touch. `changes` names everything that they touched.
3. A record that removes an unknown thing changes nothing.
4. The credential of `FALSE_SALTS` is no user's, so `credentials` lacks it and nobody can log in by it. Its keys are a
   secret of the cluster, random and known to all nodes. The salts of users that do not exist are made from it.

Threads: none; values. An editor is for one thread.

Source: AclsImage, ScramImage, DelegationTokenImage, ClientQuotasImage and their deltas (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from barnabas.protocol.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from barnabas.security.values import (
    AclBinding,
    AclOperation,
    Limits,
    PatternType,
    PermissionType,
    QuotaEntity,
    ResourceType,
    ScramCredential,
    ScramKey,
    ScramMechanism,
    TokenInformation,
)

#: The name under which the metadata log has the secret of false salts (rule 4).
FALSE_SALTS: Final = ScramKey("__barnabas_false_salts", ScramMechanism.SCRAM_SHA_256)


class Kind(Enum):
    """The four parts of the security metadata."""

    ACLS = "ACLs"
    CREDENTIALS = "SCRAM credentials"
    TOKENS = "delegation tokens"
    QUOTAS = "client quotas"


class Change(NamedTuple):
    """The name of one thing that records touched: its value is in the image, unless it was removed.

    `key` is the id of an ACL, a ScramKey, the id of a token, or (QuotaEntity, name of the quota).
    """

    kind: Kind
    key: Hashable


@dataclass(frozen=True, slots=True)
class SecurityImage:
    """The security metadata at one moment."""

    acls: Mapping[bytes, AclBinding] = field(default_factory=dict)  # by id
    credentials: Mapping[ScramKey, ScramCredential] = field(default_factory=dict)
    tokens: Mapping[str, TokenInformation] = field(default_factory=dict)  # by token id
    quotas: Mapping[QuotaEntity, Limits] = field(default_factory=dict)  # no entity without a limit
    false_salts: ScramCredential | None = None  # rule 4

    def changes(self) -> Iterator[Change]:
        """Yield the name of everything in the image."""
        yield from (Change(Kind.ACLS, key) for key in self.acls)
        yield from (Change(Kind.CREDENTIALS, key) for key in self.credentials)
        if self.false_salts is not None:
            yield Change(Kind.CREDENTIALS, FALSE_SALTS)
        yield from (Change(Kind.TOKENS, key) for key in self.tokens)
        yield from (Change(Kind.QUOTAS, (entity, key)) for entity, limits in self.quotas.items() for key in limits)

    def records(self) -> Iterator[MetadataRecord]:
        """Yield the records that turn an empty image into this one."""
        return (self.record(change) for change in self.changes())

    def record(self, change: Change) -> MetadataRecord:
        """Return the record that sets a named thing to its value here, or removes it if it is not here."""
        return _RECORDS[change.kind](self, change.key)


class SecurityEditor:
    """Replays records upon an image: `image()` returns the next one."""

    def __init__(self, image: SecurityImage) -> None:
        self.changes: set[Change] = set()
        self._image = image
        self._acls = image.acls
        self._credentials = image.credentials
        self._tokens = image.tokens
        self._quotas = image.quotas
        self._false_salts = image.false_salts

    def image(self) -> SecurityImage:
        """Return the image after all records: the first one, if they changed nothing."""
        if not self.changes:
            return self._image
        return SecurityImage(self._acls, self._credentials, self._tokens, self._quotas, self._false_salts)

    def apply(self, record: object) -> bool:
        """Replay a record; false if it is not about security."""
        handler = _HANDLERS.get(type(record))
        if handler is None:
            return False
        handler(self, record)
        return True

    def _set_acl(self, record: AccessControlEntryRecord) -> None:
        self._own_acls()[record.id] = AclBinding(
            id=record.id,
            resource_type=ResourceType.of(record.resource_type),
            resource_name=record.resource_name,
            pattern_type=PatternType.of(record.pattern_type),
            principal=record.principal,
            host=record.host,
            operation=AclOperation.of(record.operation),
            permission=PermissionType.of(record.permission_type),
        )
        self.changes.add(Change(Kind.ACLS, record.id))

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        if record.id in self._acls:
            del self._own_acls()[record.id]
            self.changes.add(Change(Kind.ACLS, record.id))

    def _set_credential(self, record: UserScramCredentialRecord) -> None:
        key = ScramKey(record.name, ScramMechanism.of(record.mechanism))
        credential = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        if key == FALSE_SALTS:
            self._false_salts = credential
        else:
            self._own_credentials()[key] = credential
        self.changes.add(Change(Kind.CREDENTIALS, key))

    def _remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        key = ScramKey(record.name, ScramMechanism.of(record.mechanism))
        if key == FALSE_SALTS and self._false_salts is not None:
            self._false_salts = None
            self.changes.add(Change(Kind.CREDENTIALS, key))
        if key in self._credentials:
            del self._own_credentials()[key]
            self.changes.add(Change(Kind.CREDENTIALS, key))

    def _set_token(self, record: DelegationTokenRecord) -> None:
        self._own_tokens()[record.token_id] = TokenInformation(
            token_id=record.token_id,
            owner=record.owner,
            requester=record.requester,
            renewers=tuple(record.renewers),
            issue_timestamp_ms=record.issue_timestamp,
            max_timestamp_ms=record.max_timestamp,
            expiry_timestamp_ms=record.expiration_timestamp,
        )
        self.changes.add(Change(Kind.TOKENS, record.token_id))

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        if record.token_id in self._tokens:
            del self._own_tokens()[record.token_id]
            self.changes.add(Change(Kind.TOKENS, record.token_id))

    def _set_quota(self, record: ClientQuotaRecord) -> None:
        entity = QuotaEntity.of({part.entity_type: part.entity_name for part in record.entity})
        limits = dict(self._quotas.get(entity, {}))
        if record.remove:
            if record.key not in limits:
                return
            del limits[record.key]
        else:
            limits[record.key] = record.value
        quotas = self._own_quotas()
        if limits:
            quotas[entity] = limits
        else:
            del quotas[entity]
        self.changes.add(Change(Kind.QUOTAS, (entity, record.key)))

    # -- copy on first write

    def _own_acls(self) -> dict[bytes, AclBinding]:
        if self._acls is self._image.acls:
            self._acls = dict(self._acls)
        assert isinstance(self._acls, dict)
        return self._acls

    def _own_credentials(self) -> dict[ScramKey, ScramCredential]:
        if self._credentials is self._image.credentials:
            self._credentials = dict(self._credentials)
        assert isinstance(self._credentials, dict)
        return self._credentials

    def _own_tokens(self) -> dict[str, TokenInformation]:
        if self._tokens is self._image.tokens:
            self._tokens = dict(self._tokens)
        assert isinstance(self._tokens, dict)
        return self._tokens

    def _own_quotas(self) -> dict[QuotaEntity, Limits]:
        if self._quotas is self._image.quotas:
            self._quotas = dict(self._quotas)
        assert isinstance(self._quotas, dict)
        return self._quotas


_HANDLERS: Final[dict[type, Callable[[SecurityEditor, Any], None]]] = {
    AccessControlEntryRecord: SecurityEditor._set_acl,
    RemoveAccessControlEntryRecord: SecurityEditor._remove_acl,
    UserScramCredentialRecord: SecurityEditor._set_credential,
    RemoveUserScramCredentialRecord: SecurityEditor._remove_credential,
    DelegationTokenRecord: SecurityEditor._set_token,
    RemoveDelegationTokenRecord: SecurityEditor._remove_token,
    ClientQuotaRecord: SecurityEditor._set_quota,
}


def security_records(records: Iterable[MetadataRecord]) -> list[MetadataRecord]:
    """Return those of some records that are about security, in order."""
    return [record for record in records if type(record) in _HANDLERS]


# -- records of single things; a missing one becomes the record that removes it


def acl_record(acl: AclBinding) -> AccessControlEntryRecord:
    """Return the record that adds an ACL."""
    return AccessControlEntryRecord(
        id=acl.id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def credential_record(key: ScramKey, credential: ScramCredential) -> UserScramCredentialRecord:
    """Return the record that sets a user's credential."""
    return UserScramCredentialRecord(
        name=key.user,
        mechanism=key.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def token_record(token: TokenInformation) -> DelegationTokenRecord:
    """Return the record that creates or changes a token."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=token.expiry_timestamp_ms,
        token_id=token.token_id,
    )


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """Return the record that sets a limit, or removes it if `value` is None."""
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)


def _acl(image: SecurityImage, key: Any) -> MetadataRecord:
    acl = image.acls.get(key)
    return RemoveAccessControlEntryRecord(id=key) if acl is None else acl_record(acl)


def _credential(image: SecurityImage, key: Any) -> MetadataRecord:
    credential = image.false_salts if key == FALSE_SALTS else image.credentials.get(key)
    if credential is None:
        return RemoveUserScramCredentialRecord(name=key.user, mechanism=key.mechanism)
    return credential_record(key, credential)


def _token(image: SecurityImage, key: Any) -> MetadataRecord:
    token = image.tokens.get(key)
    return RemoveDelegationTokenRecord(token_id=key) if token is None else token_record(token)


def _quota(image: SecurityImage, key: Any) -> MetadataRecord:
    entity, name = key
    return quota_record(entity, name, image.quotas.get(entity, {}).get(name))


_RECORDS: Final[dict[Kind, Callable[[SecurityImage, Any], MetadataRecord]]] = {
    Kind.ACLS: _acl,
    Kind.CREDENTIALS: _credential,
    Kind.TOKENS: _token,
    Kind.QUOTAS: _quota,
}
