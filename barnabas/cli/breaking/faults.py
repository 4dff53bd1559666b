"""`barnabas faults`: injects faults into a local cluster and shows its recorded requests."""

from __future__ import annotations

import json
import select
from pathlib import Path
from typing import Any

import click

from barnabas.cli.breaking.node import faults_of, print_added
from barnabas.cli.errors import ArgumentError, UserError
from barnabas.cli.local.running import directory_option
from barnabas.cli.output import json_option, show
from barnabas.cli.text import key_value

LIST_COLUMNS = ("node", "id", "state", "calls", "fired", "held", "fault")
REQUEST_COLUMNS = ("node", "api", "version", "client_id", "partitions", "outcome", "errors", "elapsed_ms")


@click.group()
def faults() -> None:
    """Inject faults into a running local cluster and record its requests.

    The cluster must run with barnabas.faults.enable=true. docs/faults.md lists the fields of a fault.
    """


@faults.command("add")
@click.argument("fields", metavar="KEY=VALUE...", nargs=-1, required=True)
@directory_option
def add(fields: tuple[str, ...], data_dir: Path | None) -> None:
    """Add one fault.

    Example: `barnabas faults add api=Produce topic=orders error=NOT_LEADER_OR_FOLLOWER times=3`.
    """
    from barnabas.faults import Fault

    with faults_of(data_dir) as cluster:
        print_added(cluster.add(Fault.parse({key: _value(text) for key, text in map(key_value, fields)})))


@faults.command("apply")
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--hold", is_flag=True, help="Wait for Ctrl-C, then remove the faults.")
@directory_option
def apply(file: Path, hold: bool, data_dir: Path | None) -> None:
    """Run the steps of a scenario (YAML) in order. Steps are faults, actions on nodes, and pauses."""
    from barnabas.faults.scenario import Scenario

    with faults_of(data_dir) as cluster:
        scenario = Scenario.load(file)
        scenario.run(cluster, click.echo)
        if not hold:
            return
        click.echo("faults are active until Ctrl-C")
        try:
            select.select([], [], [])
        except KeyboardInterrupt:
            scenario.remove()


@faults.command("list")
@json_option
@directory_option
def list_(as_json: bool, data_dir: Path | None) -> None:
    """List the faults of every node and how often each fired."""
    from barnabas.faults import Fault

    with faults_of(data_dir) as cluster:
        states = cluster.list()
    if not as_json:
        states = [{**state, "fault": str(Fault.parse(state["fault"]))} for state in states]
    show(states, LIST_COLUMNS, as_json=as_json)


@faults.command("remove")
@click.argument("fault_ids", metavar="ID...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All faults of all nodes.")
@click.option("--node", "node_id", type=click.IntRange(0), help="Only on this node.")
@directory_option
def remove(fault_ids: tuple[str, ...], is_all: bool, node_id: int | None, data_dir: Path | None) -> None:
    """Remove faults by the ids that `list` shows."""
    if is_all == bool(fault_ids):
        raise ArgumentError("give the ids of the faults to remove, or --all")
    with faults_of(data_dir) as cluster:
        chosen = fault_ids or tuple(dict.fromkeys(state["id"] for state in cluster.list()))
        removed = sum(cluster.remove(fault_id, node_id) for fault_id in chosen)
    if not removed and fault_ids:
        raise UserError(f"there is no fault {' or '.join(fault_ids)}")
    click.echo(f"{removed} faults removed")


@faults.command("record")
@click.argument("what", type=click.Choice(["start", "stop", "clear"]))
@directory_option
def record(what: str, data_dir: Path | None) -> None:
    """Start, stop or clear the recorder of requests."""
    with faults_of(data_dir) as cluster:
        getattr(cluster.recorder, what)()


@faults.command("requests")
@click.option("--api", help="Only requests of this API.")
@click.option("--topic", metavar="PATTERN", help="Only requests that name a matching topic.")
@click.option("--client-id", metavar="PATTERN", help="Only requests of matching clients.")
@click.option("--error", metavar="PATTERN", help="Only requests answered with a matching error.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write JSON lines to a file instead.")
@json_option
@directory_option
def requests(save: Path | None, as_json: bool, data_dir: Path | None, **wanted: Any) -> None:
    """Show the recorded requests."""
    with faults_of(data_dir) as cluster:
        if save is not None:
            click.echo(f"{cluster.recorder.save(save, **wanted)} requests written to {save}")
            return
        rows = [vars(request) for request in cluster.recorder.requests(**wanted)]
    if not as_json:
        rows = [{**row, "partitions": [_partition(one) for one in row["partitions"]]} for row in rows]
    show(rows, REQUEST_COLUMNS, as_json=as_json)


def _partition(one: dict[str, Any]) -> str:
    return str(one["topic"]) if one["partition"] is None else f"{one['topic']}-{one['partition']}"


def _value(text: str) -> object:
    """The number, boolean or list that the text represents, else the text itself."""
    if "," in text:
        return [_value(part) for part in text.split(",")]
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text
