"""The reference, from the tables: APIs, settings, metrics, commands, error codes, and the Python modules.

Every page lists all rows of its table; tests/docs holds them to that.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from barnabas.broker.apis.table import TABLE as BROKER_APIS
from barnabas.broker.authorization.row import Answer, Row
from barnabas.broker.authorization.table import BROKER_RIGHTS, CONTROLLER_RIGHTS, NO_RIGHTS, Rights
from barnabas.broker.requests.api import Api, Table, nodes_only
from barnabas.cli.main import cli
from barnabas.config.effect import reason_without_effect
from barnabas.config.table.key import REQUIRED, Key, Scope
from barnabas.config.table.keys import DYNAMIC_KEYS, OWN_KEYS
from barnabas.config.table.keys import TABLE as KEYS
from barnabas.controller.apis.table import TABLE as CONTROLLER_APIS
from barnabas.metrics.names import family_names
from barnabas.metrics.table import absent
from barnabas.metrics.table.catalogue import METRICS
from barnabas.metrics.table.row import Metric
from barnabas.protocol.api_keys import ROWS as API_ROWS
from barnabas.protocol.errors import ErrorCode
from tools.docs.markdown import cell, code, code_cell, docstring, escape, table
from tools.docs.python_api import python_page


def write_reference(into: Path) -> None:
    """Write every page of the reference into a directory."""
    into.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (into / f"{name}.md").write_text(page())


# --- APIs


def apis_page() -> str:
    """Return the APIs of brokers and of the controller."""
    parts = [
        "# APIs",
        "",
        "Versions are inclusive. *Nodes only*: without an authorizer, a listener for clients answers the request with "
        "CLUSTER_AUTHORIZATION_FAILED. [Rights](rights.md) are what an authorizer asks for.",
        "",
        "## Brokers",
        "",
        _api_table(BROKER_APIS),
        "## Controller",
        "",
        _api_table(CONTROLLER_APIS),
        "## What each API does",
        "",
    ]
    described: set[str] = set()
    for api in sorted((*BROKER_APIS.values(), *CONTROLLER_APIS.values()), key=lambda api: api.key):
        module = api.handle.__module__
        if module not in described:
            described.add(module)
            side = " (controller)" if ".controller." in module else ""
            parts += [f"### {api.name}{side}", "", docstring(_without_title(importlib.import_module(module).__doc__))]
    return "\n".join(parts)


def _without_title(text: str | None) -> str:
    """The docstring of an API's module without its first line, which repeats the row: `Produce: v3-v13`."""
    first, _, rest = (text or "").partition("\n")
    return rest if ": v" in first else text or ""


def _api_table(apis: Table) -> str:
    header = ("key", "API", "versions", "nodes only", "ApiVersions")
    return table(header, (_api_row(api) for api in apis.values()))


def _api_row(api: Api) -> tuple[str, ...]:
    low, high = api.versions
    restricted = "" if api.nodes_only is None else "yes" if api.nodes_only is nodes_only else "some requests"
    listed = "listed" if api.advertised else "not listed"
    versions = f"{low}" if low == high else f"{low} to {high}"
    return (str(int(api.key)), api.name, versions, restricted, listed)


# --- rights


def rights_page() -> str:
    """Return the rights that each API needs."""
    parts = [
        "# Rights",
        "",
        "With an authorizer, each API asks for these rights, in this order. *Refused*: what gets the error. An item is "
        "a topic, group, transactional id or config resource of the request. An item that is *left out* looks as if it "
        "did not exist. With a right that is *enough*, the ones below it are not asked for.",
        "",
        "## Brokers",
        "",
        _rights_table(BROKER_RIGHTS),
        "## Controller",
        "",
        "For requests that a broker forwards, the principal and the address are those of the client.",
        "",
        _rights_table(CONTROLLER_RIGHTS),
        "## No rights",
        "",
        table(("API", "why"), ((API_ROWS[key].name, cell(why)) for key, why in sorted(NO_RIGHTS.items()))),
    ]
    return "\n".join(parts)


def _rights_table(rights: Rights) -> str:
    header = ("API", "when", "operation", "resource", "without the right")
    return table(header, (_right_row(row) for key in sorted(rights) for row in rights[key]))


def _right_row(row: Row) -> tuple[str, ...]:
    resource = f"any {row.resource.name}" if row.is_any else row.resource.name
    without = {
        Answer.REQUEST: f"request refused: {row.error.name}",
        Answer.ITEM: f"item refused: {row.error.name}",
        Answer.LEFT_OUT: "left out",
        Answer.NEXT: "the next right; this one is enough",
    }[row.answer]
    return (API_ROWS[row.key].name, cell(row.condition), code(row.operation.name), code(resource), cell(without))


# --- settings


def settings_page() -> str:
    """Return every key of brokers, controllers, topics and groups."""
    every = sorted(KEYS, key=lambda key: key.name)
    dynamic = sorted(DYNAMIC_KEYS.values(), key=lambda key: key.name)
    sections: tuple[tuple[str, Iterable[Key]], ...] = (
        ("Our own", [key for key in every if key.name in OWN_KEYS]),
        ("Brokers and controllers", [key for key in every if key.scope is Scope.BROKER and key.name not in OWN_KEYS]),
        ("Brokers, at run time only", dynamic),
        ("Topics", [key for key in every if key.scope is Scope.TOPIC]),
        ("Groups", [key for key in every if key.scope is Scope.GROUP]),
    )
    parts = [
        "# Settings",
        "",
        "The default of a topic's or group's key is the broker's key in brackets. *At run time*: a running cluster "
        "applies a change, for one broker or only for all of them. *No effect*: the key is known and checked, and "
        "changes nothing here; a process warns once, and does not start if the key is meant to protect.",
        "",
    ]
    header = ("key", "type, default, bounds", "purpose")
    for title, keys in sections:
        parts += [f"## {title}", "", table(header, map(_key_row, keys))]
    return "\n".join(parts)


def _key_row(key: Key) -> tuple[str, ...]:
    if key.default == REQUIRED:
        default = "required"
    elif key.default is None or key.sensitive:
        default = "no default"
    else:
        default = code_cell(key.to_text(key.default) or '""')
    if key.synonyms:
        default += f" ({code_cell(key.synonyms[0][0])})"
    bounds = "" if key.validator is None else code_cell(str(key.validator))
    facts = ", ".join(filter(None, (key.type.name.lower(), default, bounds)))
    change = f" *At run time: {key.mode.value}.*" if key.live else ""
    effect = "" if key.honoured else f" *No effect: {cell(reason_without_effect(key))}.*"
    return (code_cell(key.name), facts, cell(key.doc) + change + effect)


# --- metrics


def metrics_page() -> str:
    """Return every metric with its series, and what is absent."""
    parts = [
        "# Metrics",
        "",
        "Each row is one of Kafka's MBeans, or one of ours (group `barnabas` and others). The series are those of "
        "`/metrics` with `barnabas.metrics.dialect=both`.",
        "",
    ]
    header = ("MBean", "kind", "meaning; labels; series")
    for group in dict.fromkeys(row.group for row in METRICS):
        rows = [_metric_row(row) for row in METRICS if row.group == group]
        parts += [f"## {escape(group)}", "", table(header, rows)]
    parts += ["## Not here", "", "Apache Kafka has these, and Barnabas does not:", ""]
    reasons = absent.MBEANS | {f"{type_}: {name}": reason for (type_, name), reason in absent.ATTRIBUTES.items()}
    parts.append(table(("MBean or attribute", "reason"), _reasons(reasons)))
    parts += ["Public dashboards query these names, which no page has:", ""]
    parts.append(table(("name", "reason"), _reasons(absent.DASHBOARD_NAMES)))
    return "\n".join(parts)


def _reasons(reasons: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((code_cell(name), cell(reason)) for name, reason in reasons.items())


def _metric_row(row: Metric) -> tuple[str, ...]:
    mbean = code_cell(f"type={row.type},name={row.name}")
    kind = row.kind.value + (f", {row.unit}" if row.unit else "")
    labels = f" Labels: {', '.join(map(code_cell, row.labels))}." if row.labels else ""
    series = ", ".join(map(code_cell, dict.fromkeys(family_names(row))))
    return (mbean, kind, f"{cell(row.doc)}{labels} Series: {series}.")


# --- command line


def commands_page() -> str:
    """Return every command, with its arguments and options."""
    parts = ["# Command line", "", "[The commands](../commands.md) shows them in use.", ""]
    for name in cli.list_commands(click.Context(cli)):
        parts += _command_parts(cli, name, "barnabas", click.Context(cli, info_name="barnabas"))
    return "\n".join(parts)


def commands(group: click.Group = cli, prefix: str = "barnabas") -> Iterator[str]:
    """Yield every command's full name: `barnabas topic create`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield f"{prefix} {name}"
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix} {name}")


def _command_parts(group: click.Group, name: str, prefix: str, parent: click.Context) -> list[str]:
    command = group.get_command(parent, name)
    assert command is not None, name
    full = f"{prefix} {name}"
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    level = "##" if parent.parent is None else "###"
    parts = [f"{level} {full}", "", f"```text\n{full} {usage}\n```", "", docstring(command.help)]
    records = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    if records:
        rows = ((code_cell(option), cell(text)) for option, text in records)
        parts += [table(("option", ""), rows)]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            parts += _command_parts(command, inner, full, context)
    return parts


# --- error codes


def errors_page() -> str:
    """Return every error code of the protocol."""
    rows = [
        (str(int(error)), code(error.name), "yes" if error.retriable else "no", cell(error.message))
        for error in ErrorCode
    ]
    return "\n".join(
        [
            "# Error codes",
            "",
            "The codes of Apache Kafka 4.3. *Retriable*: the same request may succeed later.",
            "",
            table(("code", "name", "retriable", "meaning"), rows),
        ]
    )


#: The pages, by file name.
PAGES: Final[dict[str, Callable[[], str]]] = {
    "apis": apis_page,
    "rights": rights_page,
    "settings": settings_page,
    "metrics": metrics_page,
    "commands": commands_page,
    "errors": errors_page,
    "python": python_page,
}
