"""Questions about ACLs, SCRAM credentials, client quotas and delegation tokens, for a broker with an authorizer.

The client is anonymous and a super user. Error texts are compared too, since Kafka's tools show them.

Not asked: an ACL with a code that only filters have (ANY, MATCH). Apache Kafka has no branch for it, and fails the
whole request with UNKNOWN_SERVER_ERROR; we refuse the one ACL with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.protocol.messages import k29_describe_acls as describe_wire
from barnabas.protocol.messages import k30_create_acls as create_wire
from barnabas.protocol.messages import k31_delete_acls as delete_wire
from barnabas.protocol.messages import k38_create_delegation_token as token_wire
from barnabas.protocol.messages import k39_renew_delegation_token as renew_wire
from barnabas.protocol.messages import k40_expire_delegation_token as expire_wire
from barnabas.protocol.messages import k41_describe_delegation_token as tokens_wire
from barnabas.protocol.messages import k48_describe_client_quotas as quotas_wire
from barnabas.protocol.messages import k49_alter_client_quotas as quota_wire
from barnabas.protocol.messages import k50_describe_user_scram_credentials as users_wire
from barnabas.protocol.messages import k51_alter_user_scram_credentials as user_wire
from barnabas.protocol.schema import Request, Struct
from tests.compare.conversation import CLOSED, Conversation
from tests.support.waiting import eventually

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
}
Answers = dict[str, Any]  # question -> the response as a JSON value


def answers(port: int) -> Answers:
    """Send all questions to an unused broker, in order; return its responses."""
    conversation = Conversation(port)
    found = {}
    for number, (name, request) in enumerate(_questions(), 1):
        found[name] = comparable(conversation.ask(request, request.MAX_VERSION))
        if not name.startswith("describe"):
            _await_effect(conversation, number)
    return found


def _await_effect(conversation: Conversation, number: int) -> None:
    """Wait until the broker shows every change before this call. A KRaft broker responds before it has the change."""
    mark = quota_wire.OpData(key="producer_byte_rate", value=float(number))
    conversation.ask(alter(entry({"client-id": "mark"}, mark)), 1)

    def is_seen() -> bool:
        component = quotas_wire.ComponentData(entity_type="client-id", match_type=0, match="mark")
        seen = conversation.ask(quotas_wire.DescribeClientQuotasRequest(components=[component], strict=True), 1)
        return [value.value for each in seen.entries for value in each.values] == [number]

    eventually("the change", is_seen)


def comparable(value: Any) -> Any:
    """Return a response as a JSON value, with the elements of lists in one order."""
    if value is None:
        return CLOSED
    return _json(value)


def _json(value: Any) -> Any:
    if isinstance(value, Struct):
        return {f.name: _json(getattr(value, f.name)) for f in value.FIELDS if f.name != "throttle_time_ms"}
    if isinstance(value, list):
        elements = [_json(each) for each in value]
        keeps_order = bool(value) and type(value[0]).__name__ in {"AclCreationResult", "DeleteAclsFilterResult"}
        return elements if keeps_order else sorted(elements, key=str)
    return value.hex() if isinstance(value, (bytes, memoryview)) else value


# -- ACLs


def acl(**fields: Any) -> create_wire.AclCreation:
    """Return an ACL to create; the fields replace those of a common one."""
    values = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return create_wire.AclCreation(**{**values, **fields})


def chosen(**fields: Any) -> dict[str, Any]:
    """Return the fields of a filter that selects everything, some replaced."""
    values = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return {**values, **fields}


def _acl_questions() -> Iterator[tuple[str, Request]]:
    yield (
        "create ACLs",
        create_wire.CreateAclsRequest(
            creations=[
                *(acl(), acl(), acl(resource_pattern_type=4, resource_name="ord"), acl(resource_name="*")),
                *(acl(resource_type=3, operation=2, permission_type=2), acl(resource_type=5), acl(resource_type=6)),
                *(acl(resource_type=4, resource_name="kafka-cluster", operation=9), acl(resource_type=7)),
                *(acl(host="10.0.0.1"), acl(principal="no colon"), acl(principal=""), acl(operation=15)),
                acl(resource_type=4, resource_pattern_type=4, resource_name="kafka-cluster"),
            ]
        ),
    )
    yield (
        "create bad ACLs",
        create_wire.CreateAclsRequest(
            creations=[
                *(acl(resource_type=99), acl(resource_type=4), acl(resource_name="", principal="x")),
                *(acl(resource_pattern_type=9, principal="x"), acl(operation=99), acl(permission_type=9), acl()),
            ]
        ),
    )
    for name, fields in {
        "all": {},
        "of a name": {"resource_name_filter": "orders"},
        "that match a name": {"resource_name_filter": "orders", "pattern_type_filter": 2},
        "that match any name": {"pattern_type_filter": 2},
        "of a prefix": {"resource_name_filter": "ord", "pattern_type_filter": 4},
        "of a literal name": {"resource_name_filter": "ord", "pattern_type_filter": 3},
        "of the wildcard": {"resource_name_filter": "*", "pattern_type_filter": 2},
        "of groups": {"resource_type_filter": 3},
        "of a principal": {"principal_filter": "no colon"},
        "of a host": {"host_filter": "10.0.0.1"},
        "of all operations": {"operation": 2},
        "that deny": {"permission_type": 2},
        "of an unknown type": {"resource_type_filter": 99},
        "of an unknown operation": {"operation": 99},
    }.items():
        yield f"describe ACLs {name}", describe_wire.DescribeAclsRequest(**chosen(**fields))
    filters = [
        chosen(resource_name_filter="orders", pattern_type_filter=2, operation=3),
        chosen(resource_name_filter="nothing"),
        chosen(resource_type_filter=99),
        chosen(operation=99),
        chosen(permission_type=2),
        chosen(principal_filter="User:alice", resource_type_filter=2),
    ]
    yield "delete ACLs", delete_wire.DeleteAclsRequest(filters=[delete_wire.DeleteAclsFilter(**f) for f in filters])
    yield "describe the other ACLs", describe_wire.DescribeAclsRequest(**chosen())


# -- SCRAM credentials


def user(name: str, **fields: Any) -> user_wire.ScramCredentialUpsertion:
    """Return a credential to set."""
    values = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}
    return user_wire.ScramCredentialUpsertion(name=name, **{**values, **fields})


def gone(name: str, mechanism: int = 1) -> user_wire.ScramCredentialDeletion:
    """Return a credential to remove."""
    return user_wire.ScramCredentialDeletion(name=name, mechanism=mechanism)


def _user_questions() -> Iterator[tuple[str, Request]]:
    change = user_wire.AlterUserScramCredentialsRequest
    yield (
        "set credentials",
        change(upsertions=[user("a"), user("b", mechanism=2, iterations=16384), user("c"), user("d")]),
    )
    yield (
        "set bad credentials",
        change(
            upsertions=[
                *(user(""), user("a", mechanism=0), user("b", mechanism=9), user("c", iterations=4095)),
                *(user("d", iterations=16385), user("e"), user("e", mechanism=2), user("f", iterations=-1)),
            ]
        ),
    )
    yield (
        "remove credentials, and some twice",
        change(
            deletions=[
                gone("a"),
                gone("b"),
                gone("c"),
                gone("c"),
                gone("d"),
                gone("nobody"),
                gone("", 9),
                gone("e", 9),
            ],
            upsertions=[user("d")],
        ),
    )
    for name, users in {
        "all": None,
        "none": [],
        "named": ["b", "nobody", "c", "c", ""],
    }.items():
        named = None if users is None else [users_wire.UserName(name=each) for each in users]
        yield f"describe users {name}", users_wire.DescribeUserScramCredentialsRequest(users=named)


# -- client quotas


def entry(parts: dict[str, str | None], *ops: quota_wire.OpData) -> quota_wire.RequestEntryData:
    """Return an entry that changes the limits of an entity."""
    entity = [quota_wire.EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()]
    return quota_wire.RequestEntryData(entity=entity, ops=list(ops))


def limit(key: str, value: float) -> quota_wire.OpData:
    """Return a limit to set."""
    return quota_wire.OpData(key=key, value=value)


def no_limit(key: str) -> quota_wire.OpData:
    """Return a limit to remove."""
    return quota_wire.OpData(key=key, remove=True)


def alter(*entries: quota_wire.RequestEntryData, validate_only: bool = False) -> quota_wire.AlterClientQuotasRequest:
    """Return a request that changes limits."""
    return quota_wire.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def _quota_questions() -> Iterator[tuple[str, Request]]:
    rate, share, created = "producer_byte_rate", "request_percentage", "connection_creation_rate"
    yield (
        "set quotas",
        alter(
            entry({"user": "a"}, limit(rate, 1024.0), limit(share, 12.5)),
            entry({"user": None}, limit("consumer_byte_rate", 1.0)),
            entry({"user": "a", "client-id": "c"}, limit("controller_mutation_rate", 0.5)),
            entry({"user": None, "client-id": None}, limit(rate, 1.0)),
            entry({"client-id": "c"}, limit(rate, 2.0)),
            entry({"ip": "10.0.0.1"}, limit(created, 3.0)),
            entry({"ip": None}, limit(created, 4000.0)),  # each question is a connection
            entry({"user": "of nothing"}),
        ),
    )
    yield (
        "set bad quotas",
        alter(
            entry({}, limit(rate, 1.0)),
            entry({"group": "g"}, limit(rate, 1.0)),
            entry({"user": ""}, limit(rate, 1.0)),
            entry({"ip": "10.0.0.2", "user": "u"}, limit(created, 1.0)),
            entry({"ip": "no host"}, limit(created, 1.0)),
            entry({"ip": "10.0.0.3"}, limit(rate, 1.0)),
            entry({"user": "b"}, limit(created, 1.0)),
            entry({"user": "d"}, limit("unknown", 1.0)),
            entry({"user": "e"}, limit(rate, 0.0)),
            entry({"user": "f"}, limit(rate, -1.0)),
            entry({"user": "g"}, limit(rate, 1.5)),
            entry({"user": "h"}, limit(rate, 1e19)),
            entry({"ip": "10.0.0.4"}, limit(created, 3e9)),
            entry({"user": "i"}, limit(rate, 1.0), limit(rate, 2.0)),
            entry({"user": "j"}, limit(rate, 1.0)),
            entry({"user": "j"}, limit(rate, 2.0)),
            entry({"user": "k"}, no_limit("unknown")),
        ),
    )
    yield "validate quotas", alter(entry({"user": "l"}, limit(rate, 1.0)), validate_only=True)
    exact, default, specified = range(3)
    for name, components, strict in (
        ("all", [], False),
        ("all, strictly", [], True),
        ("of a user", [("user", exact, "a")], False),
        ("of a user, strictly", [("user", exact, "a")], True),
        ("of the default user", [("user", default, None)], False),
        ("of any user", [("user", specified, None)], True),
        ("of pairs", [("user", specified, None), ("client-id", specified, None)], True),
        ("of addresses", [("ip", specified, None)], False),
        ("without a type", [("", exact, "a")], False),
        ("of a type twice", [("user", exact, "a"), ("user", default, None)], False),
        ("of an unknown type", [("group", exact, "a")], False),
        ("without a name", [("user", exact, None)], False),
        ("of a default with a name", [("user", default, "a")], False),
        ("of any with a name", [("user", specified, "a")], False),
        ("of an unknown match", [("user", 9, None)], False),
        ("of addresses and users", [("ip", specified, None), ("user", specified, None)], False),
    ):
        rows = [quotas_wire.ComponentData(entity_type=kind, match_type=how, match=m) for kind, how, m in components]
        yield f"describe quotas {name}", quotas_wire.DescribeClientQuotasRequest(components=rows, strict=strict)
    yield (
        "remove quotas",
        alter(entry({"user": "a"}, no_limit(rate), no_limit(share)), entry({"ip": "x.y"}, no_limit(rate))),
    )
    yield "describe quotas after a removal", quotas_wire.DescribeClientQuotasRequest()


# -- delegation tokens


def _token_questions() -> Iterator[tuple[str, Request]]:
    owner = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    group = [token_wire.CreatableRenewers(principal_type="Group", principal_name="g")]
    yield "create a token", token_wire.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    yield "create a token for another", token_wire.CreateDelegationTokenRequest(renewers=group, **owner)
    yield "renew a token", renew_wire.RenewDelegationTokenRequest(hmac=b"x")
    yield "expire a token", expire_wire.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1)
    yield "describe tokens", tokens_wire.DescribeDelegationTokenRequest(owners=None)


def _questions() -> Iterator[tuple[str, Request]]:
    yield from _acl_questions()
    yield from _user_questions()
    yield from _quota_questions()
    yield from _token_questions()
