"""SecurityImage: records change it, it becomes records again, and it never changes itself."""

from __future__ import annotations

import pytest

from barnabas.protocol.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    MetadataRecord,
    NoOpRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from barnabas.security.image import FALSE_SALTS, Change, Kind, SecurityEditor, SecurityImage, security_records
from barnabas.security.values import (
    AclOperation,
    PermissionType,
    QuotaEntity,
    ResourceType,
    ScramKey,
    ScramMechanism,
)

ACL = AccessControlEntryRecord(
    id=b"a" * 16,
    resource_type=2,
    resource_name="orders",
    pattern_type=4,
    principal="User:alice",
    host="*",
    operation=3,
    permission_type=3,
)
CREDENTIAL = UserScramCredentialRecord(
    name="alice", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
)
TOKEN = DelegationTokenRecord(
    owner="User:alice",
    requester="User:bob",
    renewers=["User:carol"],
    issue_timestamp=1,
    max_timestamp=3,
    expiration_timestamp=2,
    token_id="token",
)
PAIR = [EntityData(entity_type="client-id", entity_name="c"), EntityData(entity_type="user", entity_name=None)]
QUOTA = ClientQuotaRecord(entity=PAIR, key="producer_byte_rate", value=1024.0, remove=False)
EVERYTHING: list[MetadataRecord] = [ACL, CREDENTIAL, TOKEN, QUOTA]
REMOVALS: list[MetadataRecord] = [
    RemoveAccessControlEntryRecord(id=b"a" * 16),
    RemoveUserScramCredentialRecord(name="alice", mechanism=1),
    RemoveDelegationTokenRecord(token_id="token"),
    ClientQuotaRecord(entity=PAIR, key="producer_byte_rate", value=0.0, remove=True),
]


def edited(image: SecurityImage, *records: MetadataRecord) -> tuple[SecurityImage, set[Change]]:
    editor = SecurityEditor(image)
    for record in records:
        assert editor.apply(decode_record(encode_record(record)))
    return editor.image(), editor.changes


FULL, _ = edited(SecurityImage(), *EVERYTHING)


def test_records_become_values() -> None:
    acl = FULL.acls[b"a" * 16]
    assert (acl.resource_type, acl.operation, acl.permission) == (
        ResourceType.TOPIC,
        AclOperation.READ,
        PermissionType.ALLOW,
    )
    assert FULL.credentials[ScramKey("alice", ScramMechanism.SCRAM_SHA_256)].stored_key == b"stored"
    assert FULL.tokens["token"].renewers == ("User:carol",)
    assert FULL.quotas == {QuotaEntity.of({"user": None, "client-id": "c"}): {"producer_byte_rate": 1024.0}}


def test_an_image_becomes_the_same_records_again() -> None:
    assert list(FULL.records()) == EVERYTHING
    assert edited(SecurityImage(), *FULL.records())[0] == FULL


@pytest.mark.parametrize("index", range(4))
def test_changes_name_what_is_to_be_sent(index: int) -> None:
    after, changes = edited(SecurityImage(), EVERYTHING[index])
    assert [after.record(change) for change in changes] == [EVERYTHING[index]]
    gone, changes = edited(after, REMOVALS[index])
    assert gone == SecurityImage()
    assert [gone.record(change) for change in changes] == [REMOVALS[index]]


def test_a_removal_of_something_unknown_changes_nothing() -> None:
    image, changes = edited(SecurityImage(), *REMOVALS)
    assert image == SecurityImage()
    assert changes == set()


def test_the_former_image_stays_as_it_is() -> None:
    edited(FULL, *REMOVALS)
    assert list(FULL.records()) == EVERYTHING


def test_untouched_parts_are_shared() -> None:
    after, _ = edited(FULL, REMOVALS[0])
    assert after.credentials is FULL.credentials
    assert after.quotas is FULL.quotas
    assert edited(FULL)[0] is FULL


def test_an_entity_keeps_its_other_limits() -> None:
    other = ClientQuotaRecord(entity=PAIR[::-1], key="request_percentage", value=50.0)
    image, _ = edited(FULL, other, REMOVALS[3])
    assert list(image.quotas.values()) == [{"request_percentage": 50.0}]
    assert {change.kind for change in image.changes()} == set(Kind)


def test_other_records_are_left_to_others() -> None:
    assert not SecurityEditor(FULL).apply(NoOpRecord())
    assert security_records([NoOpRecord(), ACL]) == [ACL]


def test_the_secret_of_false_salts_is_no_credential() -> None:
    name, mechanism = FALSE_SALTS
    secret = UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=b"s", stored_key=b"key", server_key=b"k", iterations=4096
    )
    image, changes = edited(FULL, secret)
    assert image.false_salts is not None
    assert image.false_salts.stored_key == b"key"
    assert image.credentials is FULL.credentials
    assert [image.record(change) for change in changes] == [secret]
    assert edited(SecurityImage(), *image.records())[0] == image
    removal = RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
    gone, changes = edited(image, removal)
    assert gone == FULL
    assert [gone.record(change) for change in changes] == [removal]
    assert edited(gone, removal) == (gone, set())
