"""`barnabas node`: act on one process of a local cluster that `barnabas up` runs."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.cli.errors import UserError
from barnabas.cli.running import running_directories
from barnabas.cli.supervisor import ask

ACTIONS = {
    "kill": "SIGKILL: as if the machine had lost power, but for the page cache.",
    "stop": "SIGTERM: a controlled shutdown.",
    "start": "Start it again on the same data, and wait until clients can use it.",
    "pause": "SIGSTOP: it keeps its connections and answers nothing.",
    "resume": "SIGCONT after a pause.",
}


@click.group()
def node() -> None:
    """Act on one process of a running local cluster."""


def _add(action: str, summary: str) -> None:
    @node.command(action, help=summary)
    @click.argument("node_id", metavar="ID", type=click.IntRange(0))
    @click.option(
        "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Needed only if several clusters run."
    )
    def command(node_id: int, data_dir: Path | None) -> None:
        click.echo(ask(data_dir.absolute() if data_dir else _only_running(), action, node_id))


for _action, _summary in ACTIONS.items():
    _add(_action, _summary)


def _only_running() -> Path:
    match running_directories():
        case []:
            raise UserError("no local cluster runs that is known here: name its directory with --data-dir")
        case [directory]:
            return directory
        case several:
            raise UserError(f"several clusters run here: choose with --data-dir {' or '.join(map(str, several))}")
