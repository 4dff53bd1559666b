"""`barnabas`: the command line. Each command lives in a module of its own, imported only when it is called.

Errors that a person causes end in one line on stderr and exit code 1 (2 for a wrong option): `UserError` and the
library errors listed in `_EXPECTED` are turned into that line here, in one place.
"""

from __future__ import annotations

import importlib
import sys

import click

from barnabas.cli.errors import UserError
from barnabas.cluster import ClusterError

COMMANDS = {
    "up": ("barnabas.cli.up", "Start a local cluster: one controller and some brokers."),
    "node": ("barnabas.cli.node", "Kill, stop, start, pause or resume one process of a local cluster."),
    "broker": ("barnabas.cli.process", "Run one broker from a server.properties file."),
    "controller": ("barnabas.cli.process", "Run the controller from a server.properties file."),
    "topic": ("barnabas.cli.topic", "Create, list, describe, alter and delete topics."),
    "group": ("barnabas.cli.group", "List, describe, reset and delete consumer groups."),
    "produce": ("barnabas.cli.produce", "Produce lines of standard input or of a file."),
    "consume": ("barnabas.cli.consume", "Print the records of a topic."),
    "config": ("barnabas.cli.config", "Show and change the settings of topics, brokers and groups."),
    "doctor": ("barnabas.cli.doctor", "Tell what clients will be told by each listener, and whether it answers."),
    "dump-log": ("barnabas.cli.dump_log", "Print the batches of a log segment, an index or a checkpoint."),
    "completion": ("barnabas.cli.completion", "Print the completion script of a shell."),
}
_EXPECTED = (UserError, ClusterError, BrokenPipeError)


class LazyGroup(click.Group):
    """A group whose commands are named in COMMANDS and imported when first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="barnabas")
def cli() -> None:
    """A Kafka broker cluster in Python. Start one with `barnabas up`, then point any Kafka client at it."""


def main() -> None:
    """The console command."""
    try:
        cli(prog_name="barnabas")
    except _EXPECTED as error:
        print(f"barnabas: {error}", file=sys.stderr)
        sys.exit(1)
