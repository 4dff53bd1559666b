"""Shared by the commands that talk to a cluster: a librdkafka client, its settings, its errors in one line."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from barnabas.cli.address import bootstrap_option
from barnabas.cli.errors import RequestError, UserError
from barnabas.cli.output import progress
from barnabas.cli.records.reach import check_reachable
from barnabas.cli.security.command_config import librdkafka_settings
from barnabas.cli.suggest import did_you_mean

__all__ = ["bootstrap_option"]

T = TypeVar("T")
K = TypeVar("K")
TIMEOUT_S = 15
PROGRESS_MINIMUM = 10
UNKNOWN_NAME = frozenset({"UNKNOWN_TOPIC_OR_PART", "GROUP_ID_NOT_FOUND"})
#: A part of what librdkafka says when it was built without libsasl2.
NO_GSSAPI = "No provider for SASL mechanism GSSAPI"
TIMED_OUT = "_TIMED_OUT"
UNREACHABLE = frozenset({"_TRANSPORT", TIMED_OUT, "_ALL_BROKERS_DOWN", "_RESOLVE"})

_silent = logging.getLogger("barnabas.cli.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def settings(bootstrap: str, **extra: object) -> dict[str, Any]:
    """Settings of a librdkafka client that prints no log lines on the terminal."""
    own = {"client.id": "barnabas-cli", "log_level": 3, "logger": _silent}
    return {"bootstrap.servers": bootstrap, **own, **librdkafka_settings(bootstrap), **extra}


def client_options(command: Callable[..., T]) -> Callable[..., T]:
    """`-X key=value` as in kcat, for settings of librdkafka."""
    return click.option(
        "-X", "extra", multiple=True, metavar="KEY=VALUE", help="A client setting, by librdkafka's name."
    )(command)


def connects_as_commands_do(own: Mapping[str, object]) -> bool:
    """Whether a client with these settings connects to --bootstrap, secured as --command-config says."""
    return "bootstrap.servers" not in own and not any(key.startswith(("security.", "sasl.", "ssl.")) for key in own)


@contextlib.contextmanager
def kafka_errors(bootstrap: str, *, is_checked: bool = True) -> Iterator[None]:
    """Turn the errors of a client into UserErrors of one line.

    `is_checked`: check first whether a broker listens at all, and lets a connection of our own in.
    """
    if is_checked:
        check_reachable(bootstrap)
    try:
        yield
    except KafkaException as error:
        raise UserError(_one_line(error.args[0], bootstrap)) from error
    except TimeoutError as error:
        raise UserError(f"no cluster answers at {bootstrap} within {TIMEOUT_S} s") from error


@contextlib.contextmanager
def admin(bootstrap: str) -> Iterator[AdminClient]:
    """An admin client for the block (its futures need it alive), with its errors in one line."""
    with kafka_errors(bootstrap):
        yield AdminClient(settings(bootstrap))


def partitions_of(client: AdminClient | Consumer | Producer, topic: str) -> list[int]:
    """The partitions of a topic; raises UserError if the topic does not exist."""
    found = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error is not None:
        hint = did_you_mean(topic, topic_names(client)) if found.error.name() in UNKNOWN_NAME else ""
        raise UserError(f"{topic}: {reason(found.error)}{hint}")
    return sorted(found.partitions)


def topic_names(client: AdminClient | Consumer | Producer) -> list[str]:
    """The topics of the cluster."""
    return list(client.list_topics(timeout=TIMEOUT_S).topics)


def group_names(client: AdminClient) -> list[str]:
    """The groups of the cluster, without those of coordinators that do not answer."""
    return [group.group_id for group in client.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S).valid]


def results(
    futures: Mapping[K, Future[T]],
    name: Callable[[K], str] = str,
    label: str = "waiting",
    known: Callable[[], Iterable[str]] = tuple,
    *,
    is_change: bool = False,
) -> dict[K, T]:
    """The results of an admin call, by key.

    Waits for all of them, then raises RequestError with every key that failed. `known()` returns the existing names:
    the error suggests the closest one. `is_change`: the call changes the cluster, which may do so after an error, too.
    """
    found: dict[K, T] = {}
    failures: list[tuple[K, KafkaError]] = []
    with progress(label, len(futures), minimum=PROGRESS_MINIMUM) as advance:
        for key, future in futures.items():
            try:
                found[key] = future.result(TIMEOUT_S)
            except TimeoutError as error:
                raise UserError(_no_answer(name(key), is_change=is_change)) from error
            except KafkaException as error:
                if error.args[0].name() == TIMED_OUT:
                    raise UserError(_no_answer(name(key), is_change=is_change)) from error
                if error.args[0].name() in UNREACHABLE:
                    raise
                failures.append((key, error.args[0]))
            advance(1)
    if failures:
        names = known() if any(cause.name() in UNKNOWN_NAME for _, cause in failures) else ()
        message = "; ".join(
            f"{name(key)}: {reason(cause)}" + (did_you_mean(name(key), names) if cause.name() in UNKNOWN_NAME else "")
            for key, cause in failures
        )
        if found:
            message += f"; done: {', '.join(map(name, found))}"
        raise RequestError(message, tuple(cause.name() for _, cause in failures))
    return found


def _no_answer(name: str, *, is_change: bool) -> str:
    """Return that no answer came, though a broker was reachable: the controller or a coordinator may be down."""
    later = "; the cluster may still carry the request out: see barnabas quorum status" if is_change else ""
    return f"{name}: no answer within {TIMEOUT_S} s{later}"


def reason(cause: KafkaError) -> str:
    """An error's message and the name of its error code, in one line."""
    text = " ".join(cause.str().split()).removeprefix("Broker: ")
    return f"{text} ({cause.name()})"


def _one_line(cause: KafkaError, bootstrap: str) -> str:
    if NO_GSSAPI in cause.str():
        return (
            "this confluent-kafka has no GSSAPI, as its wheels have none: build it with libsasl2 for commands about "
            "topics, groups and records; barnabas acl, user, quota and doctor work"
        )
    if cause.name() in UNREACHABLE:
        return f"no cluster answers at {bootstrap} ({cause.str()})"
    return reason(cause)
