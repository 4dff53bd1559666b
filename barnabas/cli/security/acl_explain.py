"""`barnabas acl explain`: which rule decides, and why the others do not.

The ACLs come from the cluster (DescribeAcls) and are judged here by the rules that the brokers use (AclRules). Brokers
tell nobody super.users and allow.everyone.if.no.acl.found. So what they may change is said (`unless`).
"""

from __future__ import annotations

from typing import NamedTuple

import click

from barnabas.cli.address import bootstrap_option
from barnabas.cli.output import json_option, show_json
from barnabas.cli.security.acl_requests import describe_acls
from barnabas.cli.security.acl_words import (
    Resource,
    acl_line,
    operation_word,
    parse_operation,
    parse_resource,
    parse_user,
    resource_word,
)
from barnabas.security.acls.filters import AclFilter
from barnabas.security.acls.index import AclIndex
from barnabas.security.acls.rules import INCLUDED_IN, AclRules, Decision, Reason, canonical_host
from barnabas.security.principal import WILDCARD
from barnabas.security.values import ANY_HOST, AclBinding, AclOperation, PatternType, PermissionType

SUPER_USERS, ALLOW_EVERYONE = "super.users", "allow.everyone.if.no.acl.found"
LOCALHOST = "127.0.0.1"


class Question(NamedTuple):
    """May this principal, from this host, do this?"""

    principal: str
    host: str
    operation: AclOperation
    resource: Resource

    def __str__(self) -> str:
        where = resource_word(*self.resource)
        return f"{self.principal} {operation_word(self.operation)} {where} from {self.host}"


@click.command()
@click.argument("principal")
@click.argument("operation")
@click.argument("resource")
@click.option("--host", default=LOCALHOST, show_default=True, help="The client's address.")
@bootstrap_option
@json_option
def explain(principal: str, operation: str, resource: str, host: str, bootstrap: str, as_json: bool) -> None:
    """Say whether PRINCIPAL may do OPERATION on RESOURCE, which rule decides, and why the others do not.

    Exits 1 if a rule denies it, or if none allows it.
    """
    question = Question(parse_user(principal), host, parse_operation(operation), parse_resource(resource))
    wanted = AclFilter(question.resource.type, question.resource.name, PatternType.MATCH)
    acls = describe_acls(bootstrap, wanted)
    decision = AclRules(AclIndex(acls)).decide(question.principal, host, question.operation, *question.resource)
    others = [(acl, why_not(question, acl, decision)) for acl in acls if acl != decision.acl]
    if as_json:
        row = {
            "question": str(question),
            "allowed": is_allowed(decision),
            "reason": decision.reason.value,
            "why": why(question, decision, len(acls)),
            "unless": unless(question, decision, len(acls)),
            "rule": acl_line(decision.acl) if decision.acl else None,
            "others": [{"rule": acl_line(acl), "why_not": text} for acl, text in others],
        }
        show_json([row])
    else:
        click.echo(f"{question}: {verdict(decision)}")
        click.echo(f"  {why(question, decision, len(acls))}")
        if not decision.is_allowed:
            click.echo(f"  unless {unless(question, decision, len(acls))} (brokers do not tell)")
        if others:
            click.echo("The other rules that cover the resource:")
        for acl, text in others:
            click.echo(f"  {acl_line(acl)}: {text}")
    if not decision.is_allowed:
        click.get_current_context().exit(1)


def is_allowed(decision: Decision) -> bool | None:
    """Return whether an ACL allows it; None if no ACL decides, since the brokers' settings may allow it."""
    return None if decision.reason is Reason.DEFAULT_DENY else decision.is_allowed


def verdict(decision: Decision) -> str:
    """Return the decision as a person reads it."""
    return {True: "ALLOWED", False: "DENIED", None: "NO ACL ALLOWS IT"}[is_allowed(decision)]


def why(question: Question, decision: Decision, count: int) -> str:
    """Return why it is decided so, in one line."""
    resource = resource_word(*question.resource)
    match decision.reason:
        case Reason.DEFAULT_DENY if count:
            return (
                f"{count} rule{'' if count == 1 else 's'} cover{'s' if count == 1 else ''} {resource}, but none "
                f"allows this"
            )
        case Reason.DEFAULT_DENY:
            return f"no rule covers {resource}"
        case _:
            assert decision.acl is not None
            return f"rule: {acl_line(decision.acl)}{_included(question, decision.acl)}"


def unless(question: Question, decision: Decision, count: int) -> str | None:
    """Return which settings of the brokers would allow it all the same; None if it is allowed."""
    if decision.is_allowed:
        return None
    is_super_user = f"{question.principal} is in {SUPER_USERS}"
    return is_super_user if count else f"{is_super_user}, or {ALLOW_EVERYONE} is true"


def _included(question: Question, acl: AclBinding) -> str:
    if acl.operation is question.operation:
        return ""
    return f" ({operation_word(acl.operation)} includes {operation_word(question.operation)})"


def why_not(question: Question, acl: AclBinding, decision: Decision) -> str:
    """Return why an ACL that covers the resource does not decide."""
    if acl.principal not in (question.principal, WILDCARD):
        return "another principal"
    if acl.host != ANY_HOST and canonical_host(acl.host) != canonical_host(question.host):
        return "another host"
    wanted = INCLUDED_IN[question.operation]
    if acl.permission is PermissionType.DENY:
        wanted = frozenset({question.operation, AclOperation.ALL})
    if acl.operation not in wanted:
        return f"{operation_word(acl.operation)} does not include {operation_word(question.operation)}"
    if decision.acl is not None and decision.acl.permission is PermissionType.DENY:
        return "a deny counts before it" if acl.permission is PermissionType.ALLOW else "it denies too"
    return "it allows too"
