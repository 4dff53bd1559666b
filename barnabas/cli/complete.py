"""Shell completion of topics, groups, partitions and config keys.

Topics and groups come from the cluster. If it does not answer within a second, nothing is offered.
Anybody can name a group `$(rm -r ~)`, and bash inserts a completion unquoted. A name is therefore offered only if it is
a plain word in every shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

TIMEOUT_S = 1
PLAIN_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%+/-]*")

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offered(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(name) for name in sorted(names) if name.startswith(incomplete) and PLAIN_WORD.fullmatch(name)
    ]


def _of_cluster(names: Callable[[AdminClient], Iterable[str]]) -> Complete:
    """Completes with names from the cluster; offers nothing, silently, if it does not answer in time."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from concurrent.futures import TimeoutError as FutureTimeoutError

        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        from barnabas.cli.address import default_bootstrap
        from barnabas.cli.client import settings
        from barnabas.cli.errors import UserError
        from barnabas.cli.records.reach import check_reachable

        try:
            bootstrap = ctx.params.get("bootstrap") or default_bootstrap()
            check_reachable(bootstrap)
            return _offered(names(AdminClient(settings(bootstrap))), incomplete)
        except (KafkaException, UserError, FutureTimeoutError):
            return []

    return complete


def _groups(client: AdminClient) -> Iterable[str]:
    return [each.group_id for each in client.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S).valid]


def _partitions(client: AdminClient) -> Iterable[str]:
    topics = client.list_topics(timeout=TIMEOUT_S).topics
    return [f"{name}-{partition}" for name, topic in topics.items() for partition in topic.partitions]


complete_partitions = _of_cluster(_partitions)
complete_topics = _of_cluster(lambda client: client.list_topics(timeout=TIMEOUT_S).topics)
complete_groups = _of_cluster(_groups)


def complete_keys(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Config keys of the resource on the command line (topic, group or broker); all keys if there is none yet."""
    from barnabas.config.table.keys import TABLE

    scopes = {scope for scope in ("topic", "group", "broker") if ctx.params.get(scope) is not None}
    keys = {key.name for key in TABLE if not scopes or key.scope.value in scopes}
    return _offered(keys, incomplete)


def complete_settings(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Config keys, each followed by `=`."""
    if "=" in incomplete:
        return []
    return [CompletionItem(f"{item.value}=") for item in complete_keys(ctx, parameter, incomplete)]
