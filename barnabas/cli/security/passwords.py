"""Passwords for commands: from a prompt, from standard input or from a file, never from the command line.

Why: every user of a machine can read the arguments of its processes, and a shell keeps them in its history.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from barnabas.cli.errors import UserError

T = TypeVar("T")
STDIN = "-"
PASSWORD_MAX_BYTES = 64 * 1024


def password_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--password-file`, for commands that need a password."""
    return click.option(
        "--password-file",
        metavar="FILE",
        help="The password is the first line of FILE; - is standard input. Default: a prompt, or standard input if "
        "that is not a terminal.",
    )(command)


def read_password(password_file: str | None, user: str) -> str:
    """Return the password of a user; raises UserError if it is empty or not text."""
    if password_file is None and sys.stdin.isatty():
        typed: str = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        return typed
    where = password_file or STDIN
    if where == STDIN:
        content = sys.stdin.buffer.readline(PASSWORD_MAX_BYTES)
        where = "standard input"
    else:
        with Path(where).open("rb") as file:
            content = file.readline(PASSWORD_MAX_BYTES)
    try:
        password = content.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(f"the password in {where} is not UTF-8") from error
    if not password:
        raise UserError(f"the password in {where} is empty: its first line must have it")
    return password
