"""`barnabas config`: show and change the settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from barnabas.cli.admin.config_keys import keys
from barnabas.cli.client import TIMEOUT_S, admin, bootstrap_option, results, topic_names
from barnabas.cli.cluster_nodes import ask_any
from barnabas.cli.complete import complete_groups, complete_keys, complete_settings, complete_topics
from barnabas.cli.errors import ArgumentError, RequestError, UserError
from barnabas.cli.output import json_option, show
from barnabas.cli.settings import explained
from barnabas.cli.text import key_value, properties_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)

T = TypeVar("T")
ALL_BROKERS = ""  # the resource name of the cluster's defaults, which librdkafka refuses
DESCRIBE_VERSION, ALTER_VERSION = 4, 1


@click.group()
def config() -> None:
    """Show and change the settings of topics, brokers and groups."""


config.add_command(keys)


def _resource_options(command: Callable[..., T]) -> Callable[..., T]:
    for option, text, complete in (
        ("--group", "The settings of a consumer group.", complete_groups),
        ("--broker", 'The settings of a broker, by id; "" for the cluster\'s defaults.', None),
        ("--topic", "The settings of a topic.", complete_topics),
    ):
        command = click.option(option, help=text, shell_complete=complete)(command)
    return command


def _resource(
    topic: str | None, broker: str | None, group: str | None, changes: list[ConfigEntry] | None = None
) -> ConfigResource:
    named = [
        (kind, name)
        for kind, name in ((ResourceType.TOPIC, topic), (ResourceType.BROKER, broker), (ResourceType.GROUP, group))
        if name is not None
    ]
    if len(named) != 1:
        raise ArgumentError("give one of --topic, --broker and --group")
    ((kind, name),) = named
    return ConfigResource(kind, name, incremental_configs=changes)


def _check_broker(client: AdminClient, broker: str | None) -> None:
    """Raise UserError for a broker that is not up: librdkafka would wait for it until its timeout."""
    if not broker:
        return
    brokers = client.list_topics(timeout=TIMEOUT_S).brokers
    if broker not in map(str, brokers):
        raise UserError(f"no broker {broker} is up; the brokers are {', '.join(map(str, sorted(brokers)))}")


def _name(resource: ConfigResource) -> str:
    return f"{resource.restype.name.lower()} {resource.name}"


def _topics(client: AdminClient) -> list[str]:
    """The topics' names in the form of `_name`."""
    return [f"topic {name}" for name in topic_names(client)]


@config.command("show")
@_resource_options
@click.option("--all", "everything", is_flag=True, help="Include defaults.")
@bootstrap_option
@json_option
def show_config(
    topic: str | None, broker: str | None, group: str | None, everything: bool, bootstrap: str, as_json: bool
) -> None:
    """Show settings and their sources. Without --all, only those that differ from the defaults."""
    if broker == ALL_BROKERS and topic is group is None:
        entries = _cluster_defaults(bootstrap)
    else:
        resource = _resource(topic, broker, group)
        with admin(bootstrap) as client:
            _check_broker(client, broker)
            (entries,) = results(client.describe_configs([resource]), _name, known=lambda: _topics(client)).values()
    rows = [
        {
            "key": entry.name,
            "value": "(hidden)" if entry.is_sensitive else entry.value,
            "source": ConfigSource(entry.source).name,
            "read_only": entry.is_read_only,
        }
        for entry in sorted(entries.values(), key=lambda entry: str(entry.name))
        if everything or ConfigSource(entry.source) != ConfigSource.DEFAULT_CONFIG
    ]
    show(rows, ("key", "value", "source"), as_json=as_json)


@config.command("set")
@_resource_options
@click.argument("settings", nargs=-1, metavar="KEY=VALUE...", shell_complete=complete_settings)
@click.option(
    "--config-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A properties file with settings, for values that nobody shall see in the list of processes.",
)
@bootstrap_option
def set_config(
    topic: str | None,
    broker: str | None,
    group: str | None,
    settings: tuple[str, ...],
    config_file: Path | None,
    bootstrap: str,
) -> None:
    """Change settings. They take effect at once and survive restarts."""
    pairs = list({**properties_of(config_file), **dict(map(key_value, settings))}.items())
    if not pairs:
        raise ArgumentError("give KEY=VALUE or --config-file")
    scope = "broker" if broker is not None else "topic" if topic is not None else "group"
    with explained(scope, [key for key, _ in pairs]):
        _alter(bootstrap, topic, broker, group, [(key, value, AlterConfigOpType.SET) for key, value in pairs])
    click.echo(f"set {', '.join(key for key, _ in pairs)}")


@config.command("unset")
@_resource_options
@click.argument("keys", nargs=-1, required=True, shell_complete=complete_keys)
@bootstrap_option
def unset_config(
    topic: str | None, broker: str | None, group: str | None, keys: tuple[str, ...], bootstrap: str
) -> None:
    """Remove settings, so that the defaults apply again."""
    _alter(bootstrap, topic, broker, group, [(key, None, AlterConfigOpType.DELETE) for key in keys])
    click.echo(f"unset {', '.join(keys)}")


def _alter(
    bootstrap: str,
    topic: str | None,
    broker: str | None,
    group: str | None,
    changes: list[tuple[str, str | None, AlterConfigOpType]],
) -> None:
    if broker == ALL_BROKERS and topic is group is None:
        _alter_cluster_defaults(bootstrap, changes)
        return
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in changes]
    resource = _resource(topic, broker, group, entries)
    with admin(bootstrap) as client:
        _check_broker(client, broker)
        results(client.incremental_alter_configs([resource]), _name, known=lambda: _topics(client), is_change=True)


def _cluster_defaults(bootstrap: str) -> dict[str, ConfigEntry]:
    resource = DescribeConfigsResource(resource_type=ResourceType.BROKER.value, resource_name=ALL_BROKERS)
    (found,) = ask_any(bootstrap, DescribeConfigsRequest(resources=[resource]), DESCRIBE_VERSION).results
    _check_answer(found)
    return {
        entry.name: ConfigEntry(
            entry.name,
            entry.value,
            ConfigSource(entry.config_source),
            is_read_only=entry.read_only,
            is_sensitive=entry.is_sensitive,
        )
        for entry in found.configs
    }


def _alter_cluster_defaults(bootstrap: str, changes: list[tuple[str, str | None, AlterConfigOpType]]) -> None:
    entries = [
        AlterableConfig(name=key, config_operation=operation.value, value=value) for key, value, operation in changes
    ]
    resource = AlterConfigsResource(resource_type=ResourceType.BROKER.value, resource_name=ALL_BROKERS, configs=entries)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    _check_answer(ask_any(bootstrap, request, ALTER_VERSION).responses[0])


def _check_answer(answer: DescribeConfigsResult | AlterConfigsResourceResponse) -> None:
    """Raise RequestError if the cluster refused."""
    if answer.error_code:
        name = ErrorCode.of(answer.error_code).name
        raise RequestError(f"all brokers: {answer.error_message or 'refused'} ({name})", (name,))
