"""`barnabas quota`: limits of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from barnabas.cli.address import bootstrap_option
from barnabas.cli.cluster_nodes import ask_any
from barnabas.cli.errors import ArgumentError, UserError
from barnabas.cli.output import json_option, show
from barnabas.cli.security.answers import check
from barnabas.cli.suggest import did_you_mean
from barnabas.cli.text import key_value
from barnabas.protocol.messages import k48_describe_client_quotas as described
from barnabas.protocol.messages import k49_alter_client_quotas as altered
from barnabas.security.values import CLIENT_ID, IP, USER

T = TypeVar("T")
Entity = dict[str, str | None]  # the names by type; None is the default's
VERSION = 1
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
DEFAULT_WORD = "<default>"
KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


@click.group()
def quota() -> None:
    """Set, list and delete client quotas.

    A quota is for a --user, a --client-id, both, or an --ip; the name "" is the default for all without their own.
    """


def _entity_options(command: Callable[..., T]) -> Callable[..., T]:
    for option, text in (
        ("--ip", "An address."),
        ("--client-id", "A client id."),
        ("--user", "A user's name, without User:."),
    ):
        command = click.option(option, metavar="NAME", help=f'{text} "": the default.')(command)
    return command


def _entity(user: str | None, client_id: str | None, ip: str | None) -> Entity:
    given = {USER: user, CLIENT_ID: client_id, IP: ip}
    entity = {kind: name or None for kind, name in given.items() if name is not None}
    if IP in entity and len(entity) > 1:
        raise ArgumentError("--ip excludes --user and --client-id")
    return entity


def _required_entity(user: str | None, client_id: str | None, ip: str | None) -> Entity:
    entity = _entity(user, client_id, ip)
    if not entity:
        raise ArgumentError("say whose quota: --user, --client-id or --ip")
    return entity


@quota.command("set")
@click.argument("limits", nargs=-1, required=True, metavar="KEY=NUMBER...")
@_entity_options
@bootstrap_option
def set_quota(limits: tuple[str, ...], user: str | None, client_id: str | None, ip: str | None, bootstrap: str) -> None:
    """Set limits: producer_byte_rate, consumer_byte_rate (bytes a second of each broker), request_percentage,
    controller_mutation_rate, or for an --ip connection_creation_rate.
    """
    entity = _required_entity(user, client_id, ip)
    ops = [altered.OpData(key=_known(key), value=_number(key, text)) for key, text in map(key_value, limits)]
    _alter(bootstrap, entity, ops)
    click.echo(f"{_words(entity)}: {', '.join(f'{op.key}={_shown(op.value)}' for op in ops)}")


@quota.command("list")
@_entity_options
@bootstrap_option
@json_option
def list_quotas(user: str | None, client_id: str | None, ip: str | None, bootstrap: str, as_json: bool) -> None:
    """List the quotas, or those of the named entity and of entities that it is part of."""
    rows = [
        {**_columns(entity), "quota": key, "limit": _shown(value)}
        for entity, limits in _described(bootstrap, _entity(user, client_id, ip), is_strict=False)
        for key, value in sorted(limits.items())
    ]
    show(rows, ("user", "client_id", "ip", "quota", "limit"), as_json=as_json)


@quota.command()
@click.argument("keys", nargs=-1)
@_entity_options
@bootstrap_option
def delete(keys: tuple[str, ...], user: str | None, client_id: str | None, ip: str | None, bootstrap: str) -> None:
    """Delete the limits KEYS of an entity, or all that it has."""
    entity = _required_entity(user, client_id, ip)
    existing = [key for _, limits in _described(bootstrap, entity, is_strict=True) for key in limits]
    missing = [key for key in keys if key not in existing]
    if missing or not existing:
        raise UserError(f"{_words(entity)} has no quota{' ' if missing else ''}{', '.join(missing)}")
    removed = list(dict.fromkeys(keys)) or existing
    _alter(bootstrap, entity, [altered.OpData(key=key, remove=True) for key in removed])
    click.echo(f"{_words(entity)}: deleted {', '.join(removed)}")


def _described(bootstrap: str, entity: Entity, *, is_strict: bool) -> list[tuple[Entity, dict[str, float]]]:
    components = [
        described.ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity.items()
    ]
    request = described.DescribeClientQuotasRequest(components=components, strict=is_strict)
    answer = ask_any(bootstrap, request, VERSION)
    check(answer.error_code, answer.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def _alter(bootstrap: str, entity: Entity, ops: list[altered.OpData]) -> None:
    parts = [altered.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    entry = altered.RequestEntryData(entity=parts, ops=ops)
    for result in ask_any(bootstrap, altered.AlterClientQuotasRequest(entries=[entry]), VERSION).entries:
        check(result.error_code, result.error_message, _words(entity))


def _known(key: str) -> str:
    if key not in KEYS:
        raise ArgumentError(f"there is no quota {key}{did_you_mean(key, KEYS) or ': it can be ' + ', '.join(KEYS)}")
    return key


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ArgumentError(f"{key}={text}: not a number") from error


def _shown(value: float) -> float | int:
    """Return a limit as people write it: 1234567, 12.5."""
    return int(value) if value.is_integer() else value


def _words(entity: Entity) -> str:
    return " ".join(f"{kind} {DEFAULT_WORD if name is None else name}" for kind, name in entity.items())


def _columns(entity: Entity) -> dict[str, str | None]:
    return {
        kind.replace("-", "_"): DEFAULT_WORD if entity[kind] is None else entity[kind]
        for kind in (USER, CLIENT_ID, IP)
        if kind in entity
    }
