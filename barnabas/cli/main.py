"""`barnabas`: the command line. Each command is a module that is imported only when it runs.

A user's mistake ends in one line on stderr and a non-zero exit code. `run` maps them in one place:
    1    UserError, ClusterError, a file that cannot be used, a full disk, a closed pipe on our output
    2    ArgumentError: a wrong option or argument
    130  Ctrl-C, without a message
    143  SIGTERM, in a command that has something to finish; it ends any other one at once
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from barnabas import __version__
from barnabas.cli.errors import ArgumentError, EndedBySignal, UserError
from barnabas.cli.suggest import did_you_mean
from barnabas.cluster.errors import ClusterError

COMMANDS = {
    "up": ("barnabas.cli.local.up", "Start a local cluster: one controller and some brokers."),
    "status": ("barnabas.cli.local.detached", "Show the running local clusters and their processes."),
    "down": ("barnabas.cli.local.detached", "Stop a local cluster in order."),
    "node": (
        "barnabas.cli.breaking.node",
        "Break and repair one node of a local cluster: its process, disk, links and clock.",
    ),
    "clock": ("barnabas.cli.breaking.clock", "Move the time of a local cluster forward."),
    "faults": (
        "barnabas.cli.breaking.faults",
        "Inject faults into a local cluster and record its requests.",
    ),
    "server": ("barnabas.cli.local.process", "Run the roles of a server.properties file: broker, controller or both."),
    "broker": ("barnabas.cli.local.process", "Run one broker from a server.properties file."),
    "controller": ("barnabas.cli.local.process", "Run the controller from a server.properties file."),
    "topic": ("barnabas.cli.admin.topic", "Create, list, describe, alter and delete topics."),
    "group": ("barnabas.cli.admin.group", "List, describe, reset and delete consumer groups."),
    "quorum": ("barnabas.cli.admin.quorum", "Show the controllers that elect, and add or remove voters."),
    "produce": ("barnabas.cli.records.produce", "Produce lines of standard input or of a file."),
    "consume": ("barnabas.cli.records.consume", "Print the records of a topic."),
    "user": ("barnabas.cli.security.user", "Add, list and delete users who log in by SCRAM."),
    "acl": ("barnabas.cli.security.acl", "Add, list, delete and explain ACLs: who may do what."),
    "quota": ("barnabas.cli.security.quota", "Set, list and delete limits of users, client ids and addresses."),
    "secrets": ("barnabas.cli.security.secrets", "Write keys, passwords and client settings of a cluster as files."),
    "config": ("barnabas.cli.admin.config", "Show and change the settings of topics, brokers and groups."),
    "doctor": ("barnabas.cli.admin.doctor", "Check which addresses each listener advertises and whether they answer."),
    "stray": ("barnabas.cli.admin.stray", "List, restore and delete logs that a broker set aside."),
    "explain": (
        "barnabas.cli.inside.explain",
        "Explain the state of a partition, a group or a request, and why it waits.",
    ),
    "top": ("barnabas.cli.inside.top", "Watch queues, purgatories, requests and partitions of a running cluster."),
    "dump-log": (
        "barnabas.cli.admin.dump_log",
        "Print the content of segments, indexes, snapshots and checkpoints.",
    ),
    "drill": (
        "barnabas.cli.breaking.drill",
        "Practise incidents: break a cluster on purpose, repair it, and have the repair checked.",
    ),
    "completion": ("barnabas.cli.completion", "Print the completion script for a shell."),
}
EXIT_ERROR = 1
EXIT_WRONG_ARGUMENT = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LazyGroup(click.Group):
    """A group whose commands are listed in COMMANDS and imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name; an unknown name is an error that suggests the closest one."""
        name = args[0]
        is_command = not name.startswith("-") and not ctx.resilient_parsing
        if is_command and self.get_command(ctx, name) is None:
            ctx.fail(f"there is no command {name}{did_you_mean(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from COMMANDS, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin with `incomplete`."""
        # Why not super(): it imports every command.
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name][1]) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def print_version(context: click.Context, _parameter: click.Parameter, is_wanted: bool) -> None:
    """Print the version, whether the modules in setup.py are compiled and Python is free-threaded; then exit."""
    if not is_wanted or context.resilient_parsing:
        return
    import importlib.util  # Why here: no other command needs it

    from barnabas.common.processes.interpreter import is_free_threaded

    hot = importlib.util.find_spec("barnabas.protocol.headers")
    how = "not compiled" if hot is None or str(hot.origin).endswith(".py") else "compiled"
    how += ", free-threaded" if is_free_threaded() else ""
    click.echo(f"barnabas, version {__version__}, {how}")
    context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """A Kafka broker cluster in Python. Start one with `barnabas up` and connect any Kafka client."""


def main() -> None:
    """The entry point of the `barnabas` command."""
    _open_standard_streams()
    sys.exit(run(sys.argv[1:]))


def _open_standard_streams() -> None:
    """Open /dev/null as each standard stream that is closed (`>&-`): else the next file or socket gets its number."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def run(arguments: Sequence[str]) -> int:
    """Run a command; return the exit code."""
    try:
        code = cli.main(list(arguments), prog_name="barnabas", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _refuse(_one_line(error), error.exit_code)
    except ArgumentError as error:
        return _refuse(str(error), EXIT_WRONG_ARGUMENT)
    except (UserError, ClusterError) as error:
        return _refuse(str(error), EXIT_ERROR)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except EndedBySignal:
        return EXIT_TERMINATED
    except OSError as error:
        return _refuse_file(error)
    return code if isinstance(code, int) else 0


def _refuse(line: str, code: int) -> int:
    print(f"barnabas: {line}", file=sys.stderr)
    return code


def _refuse_file(error: OSError) -> int:
    """Report an error that names a file, or a full disk; end quietly on a closed pipe; raise any other: our bug."""
    is_full = error.filename is None and error.errno in NO_SPACE
    if error.errno == errno.EPIPE or is_full:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit fails again
        return _refuse(f"cannot write: {error.strerror}", EXIT_ERROR) if is_full else EXIT_ERROR
    if error.filename is None:
        raise error
    return _refuse(f"{os.fsdecode(error.filename)}: {error.strerror}", EXIT_ERROR)


def _one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{message} (see {error.ctx.command_path} --help)"
    return message
