"""`barnabas group`: list and describe groups, reset and delete consumer groups."""

from __future__ import annotations

import click
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, MemberDescription, OffsetSpec

from barnabas.cli.admin import share_groups, streams_groups
from barnabas.cli.client import (
    TIMEOUT_S,
    admin,
    bootstrap_option,
    group_names,
    partitions_of,
    reason,
    results,
    settings,
)
from barnabas.cli.complete import complete_groups, complete_topics
from barnabas.cli.errors import ArgumentError, UserError
from barnabas.cli.inside.pages import find_pages, page_options, read_pages
from barnabas.cli.output import json_option, show
from barnabas.cli.suggest import did_you_mean
from barnabas.cli.text import INT64_MAX
from barnabas.common.pages.live_constants import LIMIT_MAX
from barnabas.common.pages.live_shape import SharePartition
from barnabas.common.pages.page_access import Access
from barnabas.protocol.messages.k77_share_group_describe import DescribedGroup


@click.group()
def group() -> None:
    """List and describe groups, reset and delete consumer groups."""


@group.command("list")
@bootstrap_option
@json_option
def list_groups(bootstrap: str, as_json: bool) -> None:
    """List the groups with their states."""
    with admin(bootstrap) as client:
        found = client.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        if found.errors:
            raise found.errors[0]
    rows = [
        {"group": each.group_id, "state": each.state.name, "type": each.type.name if each.type else None}
        for each in found.valid
    ]
    for kind in (share_groups.TYPE, streams_groups.TYPE):
        states = share_groups.states(bootstrap, kind)
        rows += [{"group": name, "state": state.upper(), "type": kind.upper()} for name, state in states.items()]
    rows.sort(key=lambda row: row["group"])
    show(rows, ("group", "state", "type"), as_json=as_json)


@group.command()
@click.argument("name", shell_complete=complete_groups)
@page_options
@json_option
def describe(name: str, bootstrap: str, page: str | None, access: Access, as_json: bool) -> None:
    """Show the committed offsets, lags and owners of a group.

    Of a share group: start offsets, lags, members, and from the brokers' pages what is in flight, how many records
    members hold, and how often these were delivered at most. Of a streams group: its tasks, the members that have them
    or are to get them, and their lags.
    """
    with admin(bootstrap) as client:
        described = results(client.describe_consumer_groups([name]))[name]
        if described.state == ConsumerGroupState.DEAD:
            shares = share_groups.share_groups(bootstrap, [name])
            if name in shares:
                _describe_shares(shares[name], bootstrap, page, access, as_json=as_json)
                return
            if (streams := streams_groups.describe(bootstrap, name)) is not None:
                rows = streams_groups.rows(streams, _lags(client, name))
                show(rows, streams_groups.COLUMNS, as_json=as_json, title=streams_groups.title(streams))
                return
            raise UserError(f"there is no group {name}{did_you_mean(name, group_names(client))}")
        owners = owners_of(described)
        committed = committed_offsets(client, name)
        ends = end_offsets(client, list(committed.keys() | owners.keys()))
    rows = []
    for topic, partition in sorted(ends):
        offset, end = committed.get((topic, partition)), ends[topic, partition]
        owner = owners.get((topic, partition))
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "committed": offset,
                "end": end,
                "lag": None if offset is None else end - offset,
                "member": owner.member_id if owner else None,
                "host": owner.host if owner else None,
            }
        )
    columns = ("topic", "partition", "committed", "end", "lag", "member", "host")
    show(rows, columns, as_json=as_json, title=f"{name}: {described.state.name}")


def _lags(client: AdminClient, name: str) -> dict[tuple[str, int], int]:
    committed = committed_offsets(client, name)
    return {key: max(0, end - committed[key]) for key, end in end_offsets(client, list(committed)).items()}


def _describe_shares(
    described: DescribedGroup, bootstrap: str, page: str | None, access: Access, *, as_json: bool
) -> None:
    name = described.group_id
    delivered: list[SharePartition] | None = None
    try:
        query = {"section": "node,shares", "group": name, "limit": LIMIT_MAX}
        brokers = read_pages(find_pages(bootstrap, page, access), query).brokers()
        delivered = [each for live in brokers.values() for each in live["shares"]["items"]] if brokers else None
    except UserError as error:  # the rest is useful without it
        click.echo(f"barnabas: warning: what is in flight is not known: {error}", err=True)
    rows = share_groups.rows(described, share_groups.positions(bootstrap, name), delivered)
    show(rows, share_groups.COLUMNS, as_json=as_json, title=share_groups.title(described))


def owners_of(described: ConsumerGroupDescription) -> dict[tuple[str, int], MemberDescription]:
    """The members of a described group, by the (topic, partition) that each owns."""
    return {
        (tp.topic, tp.partition): member for member in described.members for tp in member.assignment.topic_partitions
    }


def committed_offsets(client: AdminClient, name: str) -> dict[tuple[str, int], int]:
    """The committed offsets of a group, by (topic, partition)."""
    request = ConsumerGroupTopicPartitions(name)
    found = results(client.list_consumer_group_offsets([request]))[name]
    return {(tp.topic, tp.partition): tp.offset for tp in found.topic_partitions if tp.error is None and tp.offset >= 0}


def end_offsets(client: AdminClient, keys: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The log end offsets of these partitions, by (topic, partition)."""
    specs = {TopicPartition(topic, partition): OffsetSpec.latest() for topic, partition in keys}
    return {(tp.topic, tp.partition): found.offset for tp, found in results(client.list_offsets(specs)).items()}


@group.command("reset-offsets")
@click.argument("name", shell_complete=complete_groups)
@click.option("--topic", required=True, help="The topic whose offsets are reset.", shell_complete=complete_topics)
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", type=click.IntRange(0, INT64_MAX), help="To this offset, or the nearest that exists.")
@click.option(
    "--to-timestamp",
    type=click.IntRange(0, INT64_MAX),
    metavar="MS",
    help="To the first record at or after this time.",
)
@click.option("--execute", is_flag=True, help="Change the offsets; without it, only show the new ones.")
@click.option("--dry-run", is_flag=True, help="Only show the new offsets (the default).")
@bootstrap_option
@json_option
def reset_offsets(
    name: str,
    topic: str,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_timestamp: int | None,
    execute: bool,
    dry_run: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Set the committed offsets of an inactive group in a topic."""
    if sum((to_earliest, to_latest, to_offset is not None, to_timestamp is not None)) != 1:
        raise ArgumentError("give one of --to-earliest, --to-latest, --to-offset and --to-timestamp")
    if execute and dry_run:
        raise ArgumentError("give --execute or --dry-run, not both")
    target = "earliest" if to_earliest else "latest"
    with admin(bootstrap) as client:
        offsets = _targets(bootstrap, topic, target, to_offset, to_timestamp)
        known = group_names(client)
        if name not in known:
            hint = did_you_mean(name, known)
            click.echo(f"barnabas: warning: there is no group {name} yet{hint}; --execute creates it", err=True)
        if execute:
            request = ConsumerGroupTopicPartitions(name, offsets)
            altered = results(client.alter_consumer_group_offsets([request]), is_change=True)[name]
            for tp in altered.topic_partitions:
                if tp.error is not None:
                    raise UserError(f"{tp.topic}-{tp.partition}: {reason(tp.error)}")
    rows = [{"topic": tp.topic, "partition": tp.partition, "new_offset": tp.offset} for tp in offsets]
    show(rows, ("topic", "partition", "new_offset"), as_json=as_json)
    if not execute and not as_json:
        click.echo("nothing has changed yet: add --execute", err=True)


def _targets(
    bootstrap: str, topic: str, target: str, to_offset: int | None, to_timestamp: int | None
) -> list[TopicPartition]:
    client = Consumer(settings(bootstrap, **{"group.id": "barnabas-cli"}))
    try:
        partitions = [TopicPartition(topic, partition) for partition in partitions_of(client, topic)]
        bounds = [client.get_watermark_offsets(tp, timeout=TIMEOUT_S) for tp in partitions]
        if to_timestamp is not None:
            asked = [TopicPartition(topic, tp.partition, to_timestamp) for tp in partitions]
            at_time = [tp.offset for tp in client.offsets_for_times(asked, timeout=TIMEOUT_S)]
            chosen = [end if offset < 0 else offset for offset, (_, end) in zip(at_time, bounds, strict=True)]
        elif to_offset is not None:
            chosen = [min(max(to_offset, start), end) for start, end in bounds]
        else:
            chosen = [start if target == "earliest" else end for start, end in bounds]
    finally:
        client.close()
    return [TopicPartition(topic, tp.partition, offset) for tp, offset in zip(partitions, chosen, strict=True)]


@group.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_groups)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete inactive groups and their offsets."""
    with admin(bootstrap) as client:
        results(
            client.delete_consumer_groups(list(dict.fromkeys(names))),
            label="deleting",
            known=lambda: group_names(client),
            is_change=True,
        )
    click.echo(f"deleted {', '.join(names)}")
