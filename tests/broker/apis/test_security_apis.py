"""The APIs of the security metadata, on the broker.

Covers `apis/k29_describe_acls.py`, `apis/k30_create_acls.py`, `apis/k31_delete_acls.py`,
`apis/k38_create_delegation_token.py`, `apis/k39_renew_delegation_token.py`, `apis/k40_expire_delegation_token.py`,
`apis/k41_describe_delegation_token.py`, `apis/k48_describe_client_quotas.py`, `apis/k49_alter_client_quotas.py`,
`apis/k50_describe_user_scram_credentials.py`, `apis/k51_alter_user_scram_credentials.py` and
`apis/security_requests.py`.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis.security_requests import may_use_tokens
from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.authorizer import Authorizer
from barnabas.broker.authorization.row import Row
from barnabas.broker.metadata.security_cache import SecurityCache
from barnabas.broker.requests.answers import Close, Reply
from barnabas.broker.requests.parking import Park
from barnabas.config.checks import STANDARD_AUTHORIZER
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.headers import encode_request
from barnabas.protocol.messages import k29_describe_acls as acl_wire
from barnabas.protocol.messages import k30_create_acls as create_acls
from barnabas.protocol.messages import k31_delete_acls as delete_acls
from barnabas.protocol.messages import k38_create_delegation_token as create_wire
from barnabas.protocol.messages import k41_describe_delegation_token as token_wire
from barnabas.protocol.messages import k48_describe_client_quotas as quota_wire
from barnabas.protocol.messages import k50_describe_user_scram_credentials as scram_wire
from barnabas.protocol.messages import request_class
from barnabas.protocol.metadata_records import MetadataRecord
from barnabas.protocol.schema import Message
from barnabas.security.image import acl_record, credential_record, quota_record, token_record
from barnabas.security.tokens import token_hmac
from barnabas.security.values import (
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    QuotaEntity,
    ResourceType,
    ScramCredential,
    ScramKey,
    ScramMechanism,
    TokenInformation,
)
from tests.broker.apis.config_rig import CONTEXT, answer_of, make_request, make_services
from tests.broker.authorization.kit import lacking
from tests.support.cpu_time import least_cpu_s

SIZE_BYTES = 4
FORWARDED = (
    *(ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN),
    *(ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
)
TOKENS = (
    *(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN),
    *(ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN),
)
AUTHORIZER = {"authorizer_class_name": STANDARD_AUTHORIZER, "allow_everyone_if_no_acl_found": "true"}
SASL = replace(CONTEXT, security_protocol="SASL_PLAINTEXT", principal="User:alice")


def services_with(*records: MetadataRecord, **settings: str) -> Any:
    services = make_services()
    if settings:
        services.config = SimpleNamespace(**settings)
    services.security = SecurityCache()
    services.security.apply(records, 1, is_full=True)
    services.metadata_cache.offset = 1
    return services


def ask(
    services: Any, message: Any, context: Any = CONTEXT, version: int | None = None, by: Authorizer | None = None
) -> Any:
    api = TABLE[message.API_KEY]
    request = make_request(api, message, version)
    request.context = context
    if by is not None:
        assert by.admit(api, request) is None
    request.buffer = memoryview(encode_request(request.header, message)[SIZE_BYTES:])
    answer = api.handle(services, request)
    return answer.message if isinstance(answer, Reply) else answer


# -- changes


@pytest.mark.parametrize("key", FORWARDED)
def test_changes_are_forwarded(key: ApiKey) -> None:
    services = make_services()
    message: Message = request_class(key)()
    parked = ask(services, message, SASL)
    assert isinstance(parked, Park)
    ((envelope, _),) = services.channel.sent
    assert envelope.request_principal.endswith(b"\x06alice\x00\x00")


# -- delegation tokens


@pytest.mark.parametrize(
    ("protocol", "principal", "is_token", "may"),
    [
        ("PLAINTEXT", "User:alice", False, False),
        ("SSL", "User:ANONYMOUS", False, False),
        ("SSL", "User:CN=alice", False, True),
        ("SASL_PLAINTEXT", "User:alice", False, True),
        ("SASL_SSL", "User:alice", True, False),
    ],
)
def test_tokens_are_for_clients_that_authenticated(protocol: str, principal: str, is_token: bool, may: bool) -> None:
    context = replace(CONTEXT, security_protocol=protocol, principal=principal, is_token_authenticated=is_token)
    request: Any = SimpleNamespace(context=context, security_protocol=protocol, principal=principal)
    assert may_use_tokens(request) is may


@pytest.mark.parametrize("key", TOKENS)
def test_an_anonymous_client_gets_no_token(key: ApiKey) -> None:
    services = services_with()
    message: Message = request_class(key)()
    low, high = TABLE[key].versions
    for version in range(low, high + 1):
        answer = ask(services, message, version=version)
        decoded: Any = type(answer).decode(answer.encode(version), version)
        assert decoded.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert services.channel.sent == []


def test_a_refused_token_names_owner_and_requester() -> None:
    request = create_wire.CreateDelegationTokenRequest(
        owner_principal_type="User",
        owner_principal_name="bob",
        renewers=[create_wire.CreatableRenewers(principal_type="Group", principal_name="g")],
    )
    answer = ask(make_services(), request, SASL)
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (answer.principal_name, answer.token_requester_principal_name) == ("bob", "alice")
    assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (-1, -1, -1)


def token(token_id: str, owner: str) -> MetadataRecord:
    return token_record(TokenInformation(token_id, f"User:{owner}", "User:asks", ("User:renews",), 1, 3, 2))


def test_tokens_are_described_with_their_secret() -> None:
    services = services_with(token("t1", "alice"), token("t2", "bob"), **SECRET)
    described = ask(services, token_wire.DescribeDelegationTokenRequest(owners=None), SASL).tokens
    assert [(t.token_id, t.principal_name) for t in described] == [("t1", "alice"), ("t2", "bob")]
    assert described[0].hmac == token_hmac("secret", "t1")
    assert described[0].token_requester_principal_name == "asks"
    assert (described[0].issue_timestamp, described[0].expiry_timestamp, described[0].max_timestamp) == (1, 2, 3)


def test_tokens_are_described_by_owner_or_renewer() -> None:
    services = services_with(token("t1", "alice"), token("t2", "bob"), **SECRET)

    def ids(*names: str) -> list[str]:
        owners = [token_wire.DescribeDelegationTokenOwner(principal_type="User", principal_name=n) for n in names]
        answer = ask(services, token_wire.DescribeDelegationTokenRequest(owners=owners), SASL)
        return [described.token_id for described in answer.tokens]

    assert ids("bob") == ["t2"]
    assert ids("renews") == ["t1", "t2"]
    assert ids("nobody") == ids() == []


def test_many_owners_cost_one_look_at_each_token() -> None:
    """Anybody who has logged in may ask."""
    services = services_with(*(token(f"t{number}", "alice") for number in range(1000)), **SECRET)
    owners = [
        token_wire.DescribeDelegationTokenOwner(principal_type="User", principal_name=str(number))
        for number in range(20_000)
    ]
    request = token_wire.DescribeDelegationTokenRequest(owners=owners)
    assert ask(services, request, SASL).tokens == []
    assert least_cpu_s(lambda: ask(services, request, SASL)) < 0.5


def test_a_token_of_another_is_described_by_a_right_to_it_or_to_its_owner() -> None:
    services = services_with(token("t1", "alice"), token("t2", "bob"), **SECRET)

    def described(*missing: Row) -> list[str]:
        message = token_wire.DescribeDelegationTokenRequest(owners=None)
        return [each.token_id for each in ask(services, message, SASL, by=lacking(*missing)).tokens]

    assert described() == ["t1", "t2"]
    assert described(rights.DESCRIBE_TOKEN) == ["t1", "t2"]
    assert described(rights.DESCRIBE_TOKENS_OF) == ["t1", "t2"]
    assert described(rights.DESCRIBE_TOKEN, rights.DESCRIBE_TOKENS_OF) == ["t1"]


@pytest.mark.parametrize(("owner", "is_refused"), [("bob", True), ("alice", False), (None, False)])
def test_a_token_for_another_owner_needs_a_right(owner: str | None, is_refused: bool) -> None:
    message = create_wire.CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User", owner_principal_name=owner
    )
    for by, refuses in ((lacking(rights.CREATE_TOKEN, name="User:bob"), is_refused), (lacking(), False)):
        answer = ask(make_services(), message, SASL, by=by)
        assert isinstance(answer, Park) is not refuses
        if refuses:
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            assert answer.principal_name == "bob"


def test_without_a_secret_no_token_is_described() -> None:
    answer = ask(services_with(), token_wire.DescribeDelegationTokenRequest(owners=None), SASL)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


SECRET: Any = {"delegation_token_secret_key": SimpleNamespace(value="secret")}


# -- ACLs


def acl(number: int, **fields: Any) -> MetadataRecord:
    values = {
        "id": number.to_bytes(16, "big"),
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission": PermissionType.ALLOW,
    }
    return acl_record(AclBinding(**{**values, **fields}))


def acl_filter(**fields: Any) -> acl_wire.DescribeAclsRequest:
    values = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return acl_wire.DescribeAclsRequest(**{**values, **fields})


def test_acls_are_described_by_pattern() -> None:
    services = services_with(
        acl(1), acl(2, operation=AclOperation.WRITE), acl(3, pattern_type=PatternType.PREFIXED), **AUTHORIZER
    )
    resources = ask(services, acl_filter()).resources
    assert [(r.resource_name, r.pattern_type, [a.operation for a in r.acls]) for r in resources] == [
        ("orders", 3, [3, 4]),
        ("orders", 4, [3]),
    ]
    assert [r.pattern_type for r in ask(services, acl_filter(operation=4)).resources] == [3]
    assert ask(services, acl_filter(principal_filter="User:bob")).resources == []


def test_a_filter_with_an_unknown_code_selects_nothing() -> None:
    assert ask(services_with(acl(1), **AUTHORIZER), acl_filter(operation=99)).resources == []


ZERO = {"operation": 0, "permission_type": 3}
KNOWN = {"operation": 99, "permission_type": 3}


@pytest.mark.parametrize(
    "message",
    [
        acl_filter(operation=0),
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", **KNOWN),
                create_acls.AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", **ZERO),
            ]
        ),
        delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(resource_type_filter=1, **ZERO)]),
    ],
    ids=["describe", "create", "delete"],
)
@pytest.mark.parametrize("settings", [{}, AUTHORIZER], ids=["without", "with an authorizer"])
def test_a_code_0_closes_the_connection(message: Any, settings: dict[str, str]) -> None:
    services = services_with(**settings)
    assert isinstance(ask(services, message), Close)
    assert services.channel.sent == []


def test_without_an_authorizer_no_acl_is_described() -> None:
    with pytest.raises(ApiError, match=r"^No Authorizer is configured on the broker$") as caught:
        ask(services_with(acl(1)), acl_filter())
    assert caught.value.code == ErrorCode.SECURITY_DISABLED


# -- SCRAM credentials


def credential(name: str, mechanism: ScramMechanism, iterations: int) -> MetadataRecord:
    return credential_record(ScramKey(name, mechanism), ScramCredential(b"s", b"k", b"v", iterations))


def test_credentials_are_described_without_keys() -> None:
    services = services_with(
        credential("bob", ScramMechanism.SCRAM_SHA_512, 8192),
        credential("alice", ScramMechanism.SCRAM_SHA_512, 4096),
        credential("alice", ScramMechanism.SCRAM_SHA_256, 5000),
    )
    for users in (None, []):
        request = scram_wire.DescribeUserScramCredentialsRequest(users=users)
        answer = answer_of(TABLE[50], services, request)
        assert [(r.user, [(i.mechanism, i.iterations) for i in r.credential_infos]) for r in answer.results] == [
            ("alice", [(1, 5000), (2, 4096)]),
            ("bob", [(2, 8192)]),
        ]


def test_named_users_are_described_once() -> None:
    services = services_with(credential("alice", ScramMechanism.SCRAM_SHA_256, 4096))
    users = [scram_wire.UserName(name=name) for name in ("alice", "nobody", "bob", "bob")]
    answer = ask(services, scram_wire.DescribeUserScramCredentialsRequest(users=users))
    assert [(r.user, r.error_code, r.error_message) for r in answer.results] == [
        ("alice", 0, ""),
        ("nobody", 91, "Attempt to describe a user credential that does not exist: nobody"),
        ("bob", 92, "Cannot describe SCRAM credentials for the same user twice in a single request: bob"),
    ]


# -- client quotas

EXACT, DEFAULT, SPECIFIED = range(3)
QUOTAS = [
    quota_record(QuotaEntity.of(parts), key, 1.0)
    for parts, key in (
        ({"user": "alice"}, "producer_byte_rate"),
        ({"user": None}, "producer_byte_rate"),
        ({"user": "alice", "client-id": "c"}, "request_percentage"),
        ({"ip": "10.0.0.1"}, "connection_creation_rate"),
    )
]


def quotas(*components: tuple[str, int, str | None], strict: bool = False) -> list[dict[str, str | None]]:
    request = quota_wire.DescribeClientQuotasRequest(
        components=[quota_wire.ComponentData(entity_type=k, match_type=t, match=m) for k, t, m in components],
        strict=strict,
    )
    answer = answer_of(TABLE[48], services_with(*QUOTAS), request)
    return [{part.entity_type: part.entity_name for part in entry.entity} for entry in answer.entries]


def test_quotas_are_described_by_filter() -> None:
    pair = {"user": "alice", "client-id": "c"}
    assert len(quotas()) == 4
    assert quotas(("user", EXACT, "alice")) == [{"user": "alice"}, pair]
    assert quotas(("user", EXACT, "alice"), strict=True) == [{"user": "alice"}]
    assert quotas(("user", DEFAULT, None)) == [{"user": None}]
    assert quotas(("user", SPECIFIED, None), ("client-id", EXACT, "c"), strict=True) == [pair]
    assert quotas(("ip", SPECIFIED, None)) == [{"ip": "10.0.0.1"}]


def test_quotas_have_values() -> None:
    answer = ask(services_with(QUOTAS[0]), quota_wire.DescribeClientQuotasRequest())
    assert [(v.key, v.value) for entry in answer.entries for v in entry.values] == [("producer_byte_rate", 1.0)]


@pytest.mark.parametrize(
    ("components", "error", "text"),
    [
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        (
            [("user", EXACT, "x"), ("user", DEFAULT, None)],
            ErrorCode.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("group", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        (
            [("user", EXACT, None)],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT, "x")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", SPECIFIED, "x")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 3"),
        (
            [("ip", EXACT, "x"), ("user", DEFAULT, None)],
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        ),
    ],
)
def test_a_bad_filter_is_refused(components: Any, error: ErrorCode, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        quotas(*components)
    assert (caught.value.code, str(caught.value)) == (error, text)
