"""The values of the security metadata: ACLs, SCRAM credentials, delegation tokens and client quotas.

They are immutable and can be hashed, so that images, pushes, indexes and caches share them. The numbers of the enums
are those of Kafka's protocol and records.

Source: ResourceType, PatternType, AclOperation, AclPermissionType, ScramMechanism, StandardAcl, ScramCredential,
TokenInformation, ClientQuotaEntity (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

E = TypeVar("E", bound="_Code")

ANY_HOST: Final = "*"
ANY_NAME: Final = "*"  # the name of a literal pattern that covers every resource of its type
CLUSTER_NAME: Final = "kafka-cluster"  # the only resource of type CLUSTER


class _Code(IntEnum):
    """A code of Kafka's protocol; 0 stands for every code that this release does not know."""

    @classmethod
    def of(cls: type[E], code: int) -> E:
        """Return the member for a code, UNKNOWN if there is none."""
        try:
            return cls(code)
        except ValueError:
            return cls(0)


class ResourceType(_Code):
    """What an ACL is about."""

    UNKNOWN = 0
    ANY = 1  # in filters
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """How the resource name of an ACL is compared."""

    UNKNOWN = 0
    ANY = 1  # in filters
    MATCH = 2  # in filters: every pattern that covers the name
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Code):
    """What a principal does with a resource."""

    UNKNOWN = 0
    ANY = 1  # in filters
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(_Code):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1  # in filters
    DENY = 2
    ALLOW = 3


class ScramMechanism(_Code):
    """A SASL mechanism of the SCRAM family."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name in SASL, such as SCRAM-SHA-256."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash function's name for hashlib."""
        return "sha512" if self is ScramMechanism.SCRAM_SHA_512 else "sha256"


SCRAM_MIN_ITERATIONS: Final = 4096  # of both mechanisms
SCRAM_MAX_ITERATIONS: Final = 16384


class AclBinding(NamedTuple):
    """An ACL: a principal, from a host, may or may not do an operation on the resources of a pattern.

    `id` is the uuid of the record in the metadata log. Two bindings that differ in nothing else are the same ACL (see
    `rule`).
    """

    id: bytes
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType

    @property
    def rule(self) -> tuple[ResourceType, str, PatternType, str, str, AclOperation, PermissionType]:
        """Everything but the id: what makes two ACLs the same."""
        _, *rule = self
        return tuple(rule)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password (RFC 5802). Nothing of it is in the repr."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = field(repr=False)


class ScramKey(NamedTuple):
    """The owner of a SCRAM credential: a user has one for each mechanism."""

    user: str
    mechanism: ScramMechanism


class TokenInformation(NamedTuple):
    """A delegation token. Its password is derived from `token_id` (tokens.py), so it is not here."""

    token_id: str
    owner: str  # a principal, like the next two
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the token's time has passed."""
        return self.max_timestamp_ms < now_ms or self.expiry_timestamp_ms < now_ms

    def can_be_renewed_by(self, principal: str) -> bool:
        """Return whether a principal is the token's owner or one of its renewers."""
        return principal == self.owner or principal in self.renewers


# Types of a quota entity's components.
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class QuotaEntity(NamedTuple):
    """The clients that a quota is for: (type, name) pairs in the order of the types; the name None is the default's."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> QuotaEntity:
        """Return the entity of these components, whatever their order."""
        return cls(tuple(sorted(parts.items(), key=lambda part: part[0])))

    def as_mapping(self) -> dict[str, str | None]:
        """Return the names by type."""
        return dict(self.parts)


Limits = Mapping[str, float]  # of a quota entity: by the key of the quota, such as producer_byte_rate
