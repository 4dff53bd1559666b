"""`barnabas completion SHELL`: prints the script that adds completion to a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL. Bash and zsh: eval "$(barnabas completion bash)"."""
    from barnabas.cli.main import cli  # the root group, which imports this module

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(cli, {}, "barnabas", "_BARNABAS_COMPLETE").source())
