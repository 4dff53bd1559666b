"""`barnabas acl`: who may do what."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from barnabas.cli.address import bootstrap_option
from barnabas.cli.errors import ArgumentError
from barnabas.cli.output import Row, json_option, show
from barnabas.cli.security.acl_explain import explain
from barnabas.cli.security.acl_requests import create_acls, delete_acls, describe_acls
from barnabas.cli.security.acl_words import (
    acl_line,
    operation_word,
    parse_acls,
    parse_operation,
    parse_resource,
    parse_resource_type,
    parse_user,
    resource_word,
)
from barnabas.security.acls.filters import AclFilter
from barnabas.security.values import ANY_HOST, AclBinding, AclOperation, PatternType, ResourceType

T = TypeVar("T")
COLUMNS = ("permission", "principal", "operation", "resource", "pattern", "host")


@click.group()
def acl() -> None:
    """Add, list, delete and explain ACLs.

    PRINCIPAL is User:alice, or alice for short; User:* is everybody. OPERATION is read, write, describe, all …, or
    several with commas. RESOURCE is topic:NAME, group:NAME, transactional-id:NAME, delegation-token:ID, user:User:NAME
    or cluster; topic:* is every topic.
    """


acl.add_command(explain)


@acl.command()
@click.argument("principal")
@click.argument("operation")
@click.argument("resource")
@click.option("--prefixed", is_flag=True, help="For all resources whose names begin with that of RESOURCE.")
@click.option("--deny", is_flag=True, help="Deny instead of allow. A deny counts before every allow.")
@click.option("--host", default=ANY_HOST, show_default=True, help="The address of the clients that it is for.")
@bootstrap_option
def add(principal: str, operation: str, resource: str, prefixed: bool, deny: bool, host: str, bootstrap: str) -> None:
    """Allow PRINCIPAL to do OPERATION on RESOURCE."""
    acls = parse_acls(principal, operation, resource, prefixed=prefixed, deny=deny, host=host)
    create_acls(bootstrap, acls)
    for each_acl in acls:
        click.echo(acl_line(each_acl))


def _filter_options(command: Callable[..., T]) -> Callable[..., T]:
    for option, metavar, text in (
        ("--host", "ADDRESS", "Only those for this host."),
        ("--operation", "OPERATION", "Only those for this operation."),
        ("--resource", "RESOURCE", "Only those of exactly this resource, or of a type: topic:orders, topic."),
        ("--covering", "RESOURCE", "Only those that count for this resource, also prefixes and *."),
        ("--principal", "PRINCIPAL", "Only those of this principal."),
    ):
        command = click.option(option, metavar=metavar, help=text)(command)
    return command


def _filter(
    principal: str | None, resource: str | None, covering: str | None, operation: str | None, host: str | None
) -> AclFilter:
    if resource is not None and covering is not None:
        raise ArgumentError("give --resource or --covering, not both")
    kind, name, pattern = ResourceType.ANY, None, PatternType.ANY
    if covering is not None:
        (kind, name), pattern = parse_resource(covering), PatternType.MATCH
    elif resource is not None and (":" in resource or resource == "cluster"):
        kind, name = parse_resource(resource)
    elif resource is not None:
        kind = parse_resource_type(resource)
    return AclFilter(
        kind,
        name,
        pattern,
        None if principal is None else parse_user(principal),
        host,
        AclOperation.ANY if operation is None else parse_operation(operation),
    )


@acl.command("list")
@_filter_options
@bootstrap_option
@json_option
def list_acls(
    principal: str | None,
    resource: str | None,
    covering: str | None,
    operation: str | None,
    host: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """List the ACLs."""
    found = describe_acls(bootstrap, _filter(principal, resource, covering, operation, host))
    show(map(_row, found), COLUMNS, as_json=as_json)


@acl.command()
@_filter_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
def delete(
    principal: str | None,
    resource: str | None,
    covering: str | None,
    operation: str | None,
    host: str | None,
    yes: bool,
    bootstrap: str,
) -> None:
    """Delete the ACLs that the options select; on a terminal, list them first and ask."""
    if all(option is None for option in (principal, resource, covering, operation, host)):
        raise ArgumentError("say which ACLs: --principal, --resource, --covering, --operation, --host")
    found = describe_acls(bootstrap, _filter(principal, resource, covering, operation, host))
    if found and not yes and sys.stdin.isatty():
        for each in found:
            click.echo(acl_line(each), err=True)
        click.confirm(f"Delete {'it' if len(found) == 1 else f'these {len(found)}'}?", abort=True, err=True)
    count = delete_acls(bootstrap, found) if found else 0
    click.echo(f"deleted {count} ACL{'' if count == 1 else 's'}")


def _row(acl: AclBinding) -> Row:
    return {
        "permission": acl.permission.name.lower(),
        "principal": acl.principal,
        "operation": operation_word(acl.operation),
        "resource": resource_word(acl.resource_type, acl.resource_name),
        "pattern": acl.pattern_type.name.lower(),
        "host": acl.host,
    }
