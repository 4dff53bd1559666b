"""Access control entries, delegation tokens and SCRAM credentials."""

from __future__ import annotations

from barnabas.protocol.metadata_records.record import MetadataRecord
from barnabas.protocol.schema import array, bytes_, int8, int32, int64, string, uuid


class AccessControlEntryRecord(MetadataRecord, record_type=18, versions="0", flexible="0+"):
    """An ACL entry is added."""

    id: bytes = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class RemoveAccessControlEntryRecord(MetadataRecord, record_type=19, versions="0", flexible="0+"):
    """An ACL entry is removed."""

    id: bytes = uuid("0+")


class DelegationTokenRecord(MetadataRecord, record_type=10, versions="0", flexible="0+"):
    """A delegation token is created or renewed."""

    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


class RemoveDelegationTokenRecord(MetadataRecord, record_type=26, versions="0", flexible="0+"):
    """A delegation token is removed."""

    token_id: str = string("0+")


class UserScramCredentialRecord(MetadataRecord, record_type=11, versions="0", flexible="0+"):
    """A SCRAM credential is set."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = bytes_("0+")
    stored_key: bytes = bytes_("0+")
    server_key: bytes = bytes_("0+")
    iterations: int = int32("0+")


class RemoveUserScramCredentialRecord(MetadataRecord, record_type=22, versions="0", flexible="0+"):
    """A SCRAM credential is removed."""

    name: str = string("0+")
    mechanism: int = int8("0+")
