"""`barnabas user`: users who log in by SCRAM.

The cluster gets a salted password, from which it keeps only derived keys (RFC 5802). It never returns them.
"""

from __future__ import annotations

import os

import click

from barnabas.cli.address import bootstrap_option
from barnabas.cli.cluster_nodes import ask_any
from barnabas.cli.errors import UserError
from barnabas.cli.output import json_option, show
from barnabas.cli.security.answers import check
from barnabas.cli.security.passwords import password_option, read_password
from barnabas.cli.suggest import did_you_mean
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
from barnabas.protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.security.sasl.scram.formulas import salted_password
from barnabas.security.values import SCRAM_MAX_ITERATIONS, SCRAM_MIN_ITERATIONS, ScramMechanism

VERSION = 0
SALT_BYTES = 24
DEFAULT_ITERATIONS = 8192
MECHANISMS = {each.mechanism_name: each for each in ScramMechanism if each}
DEFAULT_MECHANISMS = ("SCRAM-SHA-512",)


@click.group()
def user() -> None:
    """Add, list and delete users who log in by SCRAM."""


@user.command()
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(MECHANISMS)),
    multiple=True,
    default=DEFAULT_MECHANISMS,
    show_default=True,
    help="Can be given twice.",
)
@click.option(
    "--iterations",
    type=click.IntRange(SCRAM_MIN_ITERATIONS, SCRAM_MAX_ITERATIONS),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="How often the password is hashed.",
)
@password_option
@bootstrap_option
def add(name: str, mechanisms: tuple[str, ...], iterations: int, password_file: str | None, bootstrap: str) -> None:
    """Add the user NAME, or give it a new password.

    There is no option for the password itself: other users of this machine could read it.
    """
    password = read_password(password_file, name)
    for mechanism in dict.fromkeys(mechanisms):  # one request each: a request may not name a user twice
        kind, salt = MECHANISMS[mechanism], os.urandom(SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=kind,
            iterations=iterations,
            salt=salt,
            salted_password=salted_password(kind, password, salt, iterations),
        )
        _alter(bootstrap, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))
    click.echo(f"{name} can log in by {' and '.join(dict.fromkeys(mechanisms))}")


@user.command("list")
@click.argument("names", nargs=-1)
@bootstrap_option
@json_option
def list_users(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List the users NAMES, or all of them, with their mechanisms."""
    rows = [
        {
            "user": found.user,
            "mechanism": ScramMechanism.of(info.mechanism).mechanism_name,
            "iterations": info.iterations,
        }
        for found in _described(bootstrap, names)
        for info in found.credential_infos
    ]
    show(rows, ("user", "mechanism", "iterations"), as_json=as_json)


@user.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(MECHANISMS)),
    multiple=True,
    help="Delete only the credential for this mechanism.",
)
@bootstrap_option
def delete(names: tuple[str, ...], mechanisms: tuple[str, ...], bootstrap: str) -> None:
    """Delete the users NAMES. Connections that they have stay open."""
    wanted = {MECHANISMS[mechanism] for mechanism in mechanisms} or set(MECHANISMS.values())
    for found in _described(bootstrap, names):
        own = [ScramMechanism.of(info.mechanism) for info in found.credential_infos]
        chosen = [kind for kind in own if kind in wanted]
        if not chosen:
            raise UserError(f"{found.user} has no credential for {' and '.join(mechanisms)}")
        for kind in chosen:
            deletion = ScramCredentialDeletion(name=found.user, mechanism=kind)
            _alter(bootstrap, AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))
    click.echo(f"deleted {', '.join(dict.fromkeys(names))}")


def _described(bootstrap: str, names: tuple[str, ...]) -> list[DescribeUserScramCredentialsResult]:
    """Return the named users, all if none is named; raises UserError for one that does not exist."""
    named = [UserName(name=name) for name in dict.fromkeys(names)]
    request = DescribeUserScramCredentialsRequest(users=named or None)
    answer = ask_any(bootstrap, request, VERSION)
    check(answer.error_code, answer.error_message)
    results: list[DescribeUserScramCredentialsResult] = answer.results
    for found in results:
        if found.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            everyone = [each.user for each in _described(bootstrap, ())]
            raise UserError(f"there is no user {found.user}{did_you_mean(found.user, everyone)}")
        check(found.error_code, found.error_message, found.user)
    return results


def _alter(bootstrap: str, request: AlterUserScramCredentialsRequest) -> None:
    for result in ask_any(bootstrap, request, VERSION).results:
        check(result.error_code, result.error_message, result.user)
