"""`barnabas secrets`: the authority, keys, passwords and client settings of a cluster, as files.

docker-compose.secure.yml runs it once before the nodes.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from barnabas.cli.address import host_port
from barnabas.cli.errors import ArgumentError
from barnabas.cluster.security.cluster_security import check_name
from barnabas.cluster.security.secret_files import SecretFiles
from barnabas.common.clock import SystemClock

AUTHORITY = "ca"  # its file is beside those of the nodes
_NAME = r"[A-Za-z0-9\-]{1,64}"  # a common name of X.509 has 64 characters at most


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME=HOST,...",
    help="A node, and the names and addresses at which others reach it. NAME is its user between nodes.",
)
@click.option("--user", "users", multiple=True, metavar="NAME", help="A user of clients; the first administrates.")
@click.option("--bootstrap", default="", metavar="HOST:PORT,...", help="The address for clients, for their settings.")
@click.option(
    "--users-path",
    default="",
    metavar="PATH",
    help="Where clients will have DIRECTORY/users, for paths in their settings. Default: there.",
)
def secrets(directory: Path, nodes: tuple[str, ...], users: tuple[str, ...], bootstrap: str, users_path: str) -> None:
    """Write an authority, keys, passwords and client settings into DIRECTORY.

    A later run keeps the authority and the passwords, and issues the certificates again. The users have to be added
    with these passwords: `barnabas user add NAME --password-file DIRECTORY/users/NAME/password`.
    """
    hosts = dict(map(_node, nodes))
    for name in users:
        check_name(name)
    for address in filter(None, bootstrap.split(",")):
        host_port(address)
    SecretFiles(directory.absolute(), SystemClock().wall_ms()).write(hosts, users, bootstrap, users_path)
    click.echo(f"{directory}: {len(hosts)} nodes, users {', '.join(users) or 'none'}")


def _node(text: str) -> tuple[str, list[str]]:
    """Return the name and the hosts of a node; raises UserError."""
    name, _, hosts = text.partition("=")
    if not re.fullmatch(_NAME, name) or name == AUTHORITY:
        raise ArgumentError(
            f"--node {text}: expected NAME=HOST,...; a name has up to 64 letters, digits and -, and is not {AUTHORITY}"
        )
    if not hosts.isascii():
        raise ArgumentError(f"--node {text}: write a host with other letters than a to z as DNS has it (xn--...)")
    return name, [host.strip() for host in hosts.split(",") if host.strip()]
