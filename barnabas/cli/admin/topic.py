"""`barnabas topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TypeVar

import click
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from barnabas.cli.client import TIMEOUT_S, admin, bootstrap_option, results, topic_names
from barnabas.cli.complete import complete_topics
from barnabas.cli.errors import RequestError
from barnabas.cli.output import json_option, show
from barnabas.cli.settings import explained
from barnabas.cli.text import key_value

T = TypeVar("T")
PARTITIONS_MAX, REPLICAS_MAX = 100_000, 10_000  # of librdkafka


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, PARTITIONS_MAX), help="Default: the cluster's num.partitions.")
@click.option("--replication-factor", type=click.IntRange(1, REPLICAS_MAX), help="Default: default.replication.factor.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic setting.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
@bootstrap_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
) -> None:
    """Create the topic NAME."""
    settings = dict(map(key_value, configs))
    new_topic = NewTopic(name, partitions or -1, replication_factor or -1, config=settings)
    with admin(bootstrap) as client:
        try:
            with explained("topic", list(settings)):
                results(client.create_topics([new_topic]), is_change=True)
        except RequestError as error:
            if not (if_not_exists and error.codes == ("TOPIC_ALREADY_EXISTS",)):
                raise
            click.echo(f"{name} exists already")
            return
    click.echo(f"created {name}")


def _topic_results(
    client: AdminClient, futures: Mapping[str, Future[T]], label: str = "waiting", *, is_change: bool = False
) -> dict[str, T]:
    return results(futures, label=label, known=lambda: topic_names(client), is_change=is_change)


@topic.command("list")
@click.option("--internal", is_flag=True, help="Include the cluster's internal topics.")
@bootstrap_option
@json_option
def list_topics(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List the topics with their numbers of partitions and replicas."""
    with admin(bootstrap) as client:
        topics = client.list_topics(timeout=TIMEOUT_S).topics.values()
    rows = [
        {
            "topic": found.topic,
            "partitions": len(found.partitions),
            "replicas": max((len(partition.replicas) for partition in found.partitions.values()), default=0),
        }
        for found in sorted(topics, key=lambda found: str(found.topic))
        if internal or not str(found.topic).startswith("__")
    ]
    show(rows, ("topic", "partitions", "replicas"), as_json=as_json)


@topic.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show leader, replicas and in-sync replicas of each partition."""
    with admin(bootstrap) as client:
        described = _topic_results(client, client.describe_topics(TopicCollection(list(names))))
    rows = [
        {
            "topic": found.name,
            "partition": partition.id,
            "leader": partition.leader.id if partition.leader else None,
            "replicas": [node.id for node in partition.replicas],
            "isr": [node.id for node in partition.isr],
            "topic_id": str(found.topic_id),
        }
        for found in described.values()
        for partition in found.partitions
    ]
    show(rows, ("topic", "partition", "leader", "replicas", "isr"), as_json=as_json)


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--partitions", type=click.IntRange(1, PARTITIONS_MAX), required=True, help="The new number of partitions."
)
@bootstrap_option
def alter(name: str, partitions: int, bootstrap: str) -> None:
    """Add partitions to the topic NAME. To change its settings, use `barnabas config`."""
    with admin(bootstrap) as client:
        _topic_results(client, client.create_partitions([NewPartitions(name, partitions)]), is_change=True)
    click.echo(f"{name} has {partitions} partitions")


@topic.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete topics and all their records."""
    with admin(bootstrap) as client:
        _topic_results(client, client.delete_topics(list(dict.fromkeys(names))), "deleting", is_change=True)
    click.echo(f"deleted {', '.join(names)}")
