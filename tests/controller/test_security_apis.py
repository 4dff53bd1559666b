"""The controller's APIs of the security metadata, direct and forwarded by a broker, and the pushes that follow.

Covers `controller/apis/k30_create_acls.py`, `controller/apis/k31_delete_acls.py`,
`controller/apis/k38_create_delegation_token.py`, `controller/apis/k39_renew_delegation_token.py`,
`controller/apis/k40_expire_delegation_token.py`, `controller/apis/k49_alter_client_quotas.py`,
`controller/apis/k51_alter_user_scram_credentials.py` and `controller/apis/token_requests.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.channels.forwarding import encode_principal
from barnabas.controller.decision import Decision
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import k30_create_acls as create_wire
from barnabas.protocol.messages import k31_delete_acls as delete_wire
from barnabas.protocol.messages import k38_create_delegation_token as token_wire
from barnabas.protocol.messages import k39_renew_delegation_token as renew_wire
from barnabas.protocol.messages import k40_expire_delegation_token as expire_wire
from barnabas.protocol.messages import k49_alter_client_quotas as quota_wire
from barnabas.protocol.messages import k51_alter_user_scram_credentials as scram_wire
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest
from barnabas.protocol.metadata_records import (
    AccessControlEntryRecord,
    ConfigRecord,
    NoOpRecord,
    RemoveAccessControlEntryRecord,
)
from barnabas.protocol.push_tags import FULL, controller_epoch_of, offset_of, records_of, set_token_id
from barnabas.security.image import security_records
from tests.controller.rig import registration
from tests.controller.test_any_request import SIZE_PREFIX, Asker

NEWEST = {30: 3, 31: 3, 38: 3, 39: 2, 40: 2, 44: 1, 49: 1, 51: 0}
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.fixture
def asker() -> Asker:
    return Asker(0)


def ask(asker: Asker, message: Any) -> Any:
    return asker.ask(RequestHeader(message.API_KEY, NEWEST[message.API_KEY], 7, "c"), message)


def envelope(asker: Asker, message: Any, principal: bytes, token_id: bytes | None = None) -> Any:
    header = RequestHeader(message.API_KEY, NEWEST[message.API_KEY], 7, "c")
    frame = encode_request(header, message)[SIZE_PREFIX:]
    request = EnvelopeRequest(request_data=frame, request_principal=principal, client_host_address=bytes(4))
    if token_id is not None:
        set_token_id(request, token_id)
    return asker.ask(RequestHeader(58, 0, 1, "0"), request)


def forward(asker: Asker, message: Any, principal: bytes = encode_principal("User:alice")) -> Any:
    response = envelope(asker, message, principal)
    _, offset = decode_response_header(response.response_data, message.API_KEY, NEWEST[message.API_KEY])
    return response_class(message.API_KEY).decode(response.response_data, NEWEST[message.API_KEY], offset)


def acl(name: str = "orders") -> create_wire.CreateAclsRequest:
    creation = create_wire.AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    return create_wire.CreateAclsRequest(creations=[creation])


#: The fields of a filter that selects every ACL; those of DescribeAcls are the same.
EVERY_ACL: dict[str, Any] = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


def all_acls() -> delete_wire.DeleteAclsRequest:
    return delete_wire.DeleteAclsRequest(filters=[delete_wire.DeleteAclsFilter(**EVERY_ACL)])


def quota(parts: dict[str, str]) -> quota_wire.AlterClientQuotasRequest:
    entity = [quota_wire.EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()]
    key = "connection_creation_rate" if "ip" in parts else "producer_byte_rate"
    ops = [quota_wire.OpData(key=key, value=1.0)]
    return quota_wire.AlterClientQuotasRequest(entries=[quota_wire.RequestEntryData(entity=entity, ops=ops)])


def user(name: str) -> scram_wire.AlterUserScramCredentialsRequest:
    upsertion = scram_wire.ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
    )
    return scram_wire.AlterUserScramCredentialsRequest(upsertions=[upsertion])


@pytest.mark.parametrize("send", [ask, forward])
def test_everything_can_be_changed_and_survives_a_restart(asker: Asker, send: Any) -> None:
    assert send(asker, acl()).results[0].error_code == 0
    assert send(asker, user("alice")).results[0].error_code == 0
    assert [e.error_code for e in send(asker, quota({"user": "alice"})).entries] == [0]
    assert [e.error_code for e in send(asker, quota({"ip": "127.0.0.1"})).entries] == [0]
    assert forward(asker, token_wire.CreateDelegationTokenRequest(max_lifetime_ms=-1)).error_code == 0
    security = asker.rig.image.security
    counts = [len(security.acls), len(security.credentials), len(security.quotas), len(security.tokens)]
    assert counts == [1, 1, 2, 1]
    rig = asker.rig.restart()
    assert rig.image.security == security
    rig.controller._snapshot_bytes = 1
    rig.controller.loop.step()  # writes a snapshot
    assert rig.restart().image.security == security


def test_an_address_that_is_none_is_refused(asker: Asker) -> None:
    (entry,) = ask(asker, quota({"ip": "not an address"})).entries
    assert entry.error_message == "not an address is not a valid IP or resolvable host."


def test_the_envelope_tells_where_the_effect_is(asker: Asker) -> None:
    response = envelope(asker, user("alice"), encode_principal("User:admin"))
    assert offset_of(response) == asker.rig.image.offset


def test_no_broker_waits_for_a_record_that_is_not_pushed(asker: Asker) -> None:
    """Otherwise a request that changes nothing is answered when its time is up, after 30 s."""
    pushed = offset_of(envelope(asker, acl(), encode_principal("User:admin")))
    asker.rig.decide(lambda _: Decision([NoOpRecord()], None))
    assert asker.rig.image.offset == asker.rig.controller.committed_image.offset == pushed + 1
    assert offset_of(envelope(asker, acl(), encode_principal("User:admin"))) == pushed


TOKEN_REQUESTS = [
    token_wire.CreateDelegationTokenRequest(max_lifetime_ms=-1),
    renew_wire.RenewDelegationTokenRequest(hmac=b"x"),
    expire_wire.ExpireDelegationTokenRequest(hmac=b"x"),
]


@pytest.mark.parametrize("message", TOKEN_REQUESTS, ids=lambda message: type(message).__name__)
def test_tokens_are_for_clients_that_authenticated(asker: Asker, message: Any) -> None:
    assert ask(asker, message).error_code == NOT_ALLOWED
    assert forward(asker, message, b"").error_code == NOT_ALLOWED
    assert forward(asker, message, encode_principal("User:a", is_token=True)).error_code == NOT_ALLOWED
    assert forward(asker, message).error_code in (0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    asker.context = replace(asker.context, principal="User:alice")
    assert ask(asker, message).error_code in (0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def test_only_newer_clients_are_told_who_requested_a_token(asker: Asker) -> None:
    asker.context = replace(asker.context, principal="User:alice")
    message = token_wire.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    for version, requester in ((2, ""), (3, "alice")):
        response = asker.ask(RequestHeader(38, version, 7, "c"), message)
        assert not response.error_code
        assert response.token_requester_principal_name == requester


def updates(asker: Asker, broker_id: int) -> list[Any]:
    asker.rig.push()
    return [m for m in asker.rig.brokers[broker_id].take() if isinstance(m, UpdateMetadataRequest)]


def test_a_full_push_carries_everything(asker: Asker) -> None:
    for message in (acl(), user("alice"), quota({"user": "alice"})):
        ask(asker, message)
    asker.rig.register(7)
    (update,) = updates(asker, 7)
    assert update.type == FULL
    assert security_records(records_of(update)) == list(asker.rig.image.security.records())


def test_a_later_push_carries_what_changed_and_what_is_gone(asker: Asker) -> None:
    ask(asker, user("alice"))
    updates(asker, 0)
    ask(asker, acl())
    (update,) = updates(asker, 0)
    (added,) = records_of(update)
    assert isinstance(added, AccessControlEntryRecord)
    assert update.topic_states == []
    asker.rig.brokers[0].is_down = True
    ask(asker, all_acls())
    ask(asker, acl("other"))
    ask(asker, all_acls())
    asker.rig.push()
    asker.rig.brokers[0].is_down = False
    (update,) = updates(asker, 0)
    removed = records_of(update)
    assert all(isinstance(record, RemoveAccessControlEntryRecord) for record in removed)
    assert RemoveAccessControlEntryRecord(id=added.id) in removed
    assert offset_of(update) == asker.rig.image.offset


def test_a_registration_brings_everything(asker: Asker) -> None:
    ask(asker, user("alice"))
    response = asker.ask(RequestHeader(62, 4, 7, "9"), registration(9))
    of_all, *security = records_of(response)
    assert isinstance(of_all, ConfigRecord)
    assert (of_all.resource_name, of_all.name, of_all.value) == ("", "min.insync.replicas", "1")
    assert security == list(asker.rig.image.security.records())
    assert offset_of(response) == asker.rig.image.offset
    assert controller_epoch_of(response) == asker.rig.controller.epoch


def test_an_envelope_that_arrives_twice_makes_one_token(asker: Asker) -> None:
    message = token_wire.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    for _ in range(2):
        envelope(asker, message, encode_principal("User:alice"), b"t" * 16)
    assert [token.owner for token in asker.rig.image.security.tokens.values()] == ["User:alice"]
    envelope(asker, message, encode_principal("User:alice"), b"no uuid")
    assert len(asker.rig.image.security.tokens) == 2
