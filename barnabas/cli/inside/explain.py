"""`barnabas explain`: describes the state of a partition, a group or a request, and what it waits for.

`barnabas.cli.inside.*_words` write the text from the processes' pages (`/live.json`). Exit code 1: no process that
answers knows that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from barnabas.cli.admin.group import committed_offsets, end_offsets, owners_of
from barnabas.cli.client import admin, results
from barnabas.cli.complete import complete_groups, complete_partitions
from barnabas.cli.errors import ArgumentError, UserError
from barnabas.cli.inside.group_words import Position, by_partition, group_words
from barnabas.cli.inside.pages import Answers, Page, find_pages, page_options, read_pages
from barnabas.cli.inside.partition_words import partition_words, view_of
from barnabas.cli.inside.request_words import Found, chosen, request_words, requests_of
from barnabas.cli.output import Row, json_option, show_json
from barnabas.common.pages.live_constants import LIMIT_MAX
from barnabas.common.pages.live_shape import Group, Waiting
from barnabas.common.pages.page_access import Access
from barnabas.common.topic_partition import TopicPartition

SHOWN = 3
REQUEST_SECTIONS = "node,processors,request_queue,handlers,purgatories,elsewhere,requests"


@click.group()
def explain() -> None:
    """Explain the state of a partition, a group or a request, and what it waits for."""


# --- partition


@explain.command()
@click.argument("name", metavar="TOPIC-PARTITION", shell_complete=complete_partitions)
@page_options
@json_option
def partition(name: str, bootstrap: str, page: str | None, access: Access, as_json: bool) -> None:
    """Explain a partition: its leader, replicas and high watermark.

    Also list the requests that wait for it.

    Example: `barnabas explain partition orders-3`.
    """
    tp = _topic_partition(name)
    answers = _read(
        find_pages(bootstrap, page, access),
        section="node,partitions,purgatories,transactions",
        topic=tp.topic,
        partition=tp.partition,
        limit=LIMIT_MAX,
    )
    lives = answers.brokers()
    if as_json:
        views = ((broker, view_of(tp, live)) for broker, live in lives.items())
        show_json({"broker": broker, **view} for broker, view in views if view is not None)
        return
    try:
        lines = partition_words(tp, lives, answers.unreachable_brokers())
    except KeyError as error:
        raise UserError(f"no broker that answers has a partition {tp}{_silent_brokers(answers)}") from error
    _print(lines)


def _topic_partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    if not topic or not (number.isascii() and number.isdigit()):
        raise ArgumentError(f"'{text}' is not TOPIC-PARTITION, for example orders-0")
    return TopicPartition(topic, int(number))


# --- group


@explain.command("group")
@click.argument("name", shell_complete=complete_groups)
@page_options
@json_option
def group_command(name: str, bootstrap: str, page: str | None, access: Access, as_json: bool) -> None:
    """Explain a group: its state, its members and its lag."""
    answers = _read(
        find_pages(bootstrap, page, access), section="node,groups,elsewhere,shares", group=name, limit=LIMIT_MAX
    )
    coordinator, group, waiting = _group_of(name, answers)
    try:  # of a share group, the share coordinators have the positions
        positions, problem = [] if group["type"] == "share" else _positions(name, bootstrap, group["type"]), ""
    except UserError as error:  # the coordinator's data is useful without positions
        positions, problem = [], str(error)
    if as_json:
        rows = None if problem else [_position_row(each) for each in positions]
        show_json([{"coordinator": coordinator, **group, "positions": rows}])
        return
    shares = [share for live in answers.brokers().values() for share in live["shares"]["items"]]
    _print(group_words(group, coordinator, positions, waiting, problem, shares))


def _group_of(name: str, answers: Answers) -> tuple[int, Group, list[Waiting]]:
    """The id of a group's coordinator, the group, and the requests that wait there for it."""
    for broker, live in answers.brokers().items():
        for group in live["groups"]["items"]:
            if group["group_id"] == name:
                waiting = [
                    item
                    for item in live["elsewhere"]["items"]
                    if any(reason.get("group") == name for reason in item["reasons"])
                ]
                return broker, group, waiting
    raise UserError(f"no broker that answers coordinates a group {name}{_silent_brokers(answers)}")


def _positions(name: str, bootstrap: str, kind: str) -> list[Position]:
    with admin(bootstrap) as client:
        owners: dict[tuple[str, int], str] = {}
        if kind != "streams":  # its members have tasks, not partitions, and the page shows them
            described = results(client.describe_consumer_groups([name]))[name]
            owners = {key: str(member.member_id) for key, member in owners_of(described).items()}
        committed = committed_offsets(client, name)
        return by_partition(committed, end_offsets(client, list(committed.keys() | owners.keys())), owners)


def _position_row(position: Position) -> Row:
    return {
        "topic": position.tp.topic,
        "partition": position.tp.partition,
        "committed": position.committed,
        "end": position.end,
        "lag": position.lag,
        "member": position.owner,
    }


# --- request


@explain.command()
@click.argument("correlation_id", required=False, type=click.IntRange(0))
@click.option("--client", metavar="CLIENT_ID", help="Only requests of this client.")
@click.option("--api", metavar="NAME", help="Only requests of this API: Produce, Fetch, ...")
@click.option("--slowest", is_flag=True, help="Only the slowest finished requests of the last minutes.")
@click.option("--max", "at_most", type=click.IntRange(1), default=SHOWN, show_default=True, help="The most to show.")
@page_options
@json_option
def request(
    correlation_id: int | None,
    client: str | None,
    api: str | None,
    slowest: bool,
    at_most: int,
    bootstrap: str,
    page: str | None,
    access: Access,
    as_json: bool,
) -> None:
    """Explain a request: where its time went and where it is now.

    Choose it by correlation id, client or API, or choose the slowest. Each broker knows all requests in progress, and
    the slowest finished ones of the last minutes.
    """
    if correlation_id is None and client is None and api is None and not slowest:
        raise ArgumentError("give a correlation id, --client, --api or --slowest")
    answers = _read(find_pages(bootstrap, page, access), section=REQUEST_SECTIONS, limit=LIMIT_MAX)
    known = [each for page, live in answers.found.items() for each in requests_of(page.name, live)]
    matching = chosen(known, correlation_id, client, api, slowest=slowest)
    if not matching:
        raise UserError(f"no such request is in progress or kept as slow{_silent_brokers(answers)}")
    if as_json:
        show_json({"where": each.where, **each.request, "waiting": each.waiting} for each in matching[:at_most])
        return
    _print(_request_lines(matching, at_most))


def _request_lines(found: Sequence[Found], at_most: int) -> Iterable[str]:
    for each in found[:at_most]:
        yield from request_words(each)
    if len(found) > at_most:
        yield f"and {len(found) - at_most} more (--max)"


# --- all of them


def _read(pages: Sequence[Page], **query: object) -> Answers:
    """Read the pages. Raises UserError if none answers."""
    answers = read_pages(pages, query)
    if not answers.found:
        raise UserError("; ".join(f"{each.page.name}: {each.problem}" for each in answers.unanswered))
    return answers


def _silent_brokers(answers: Answers) -> str:
    """The brokers that do not answer (they may know the name), to append to an error."""
    return "".join(f"; broker {broker}: {problem}" for broker, problem in answers.unreachable_brokers().items())


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
