"""What the commands that talk to a cluster share: where it is, a client for it, and its errors in one line."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from barnabas.cli.address import bootstrap_option, default_bootstrap
from barnabas.cli.errors import RequestError, UserError
from barnabas.cli.output import progress

__all__ = ["bootstrap_option"]

T = TypeVar("T")
K = TypeVar("K")
TIMEOUT_S = 15
COMPLETION_TIMEOUT_S = 1
PROGRESS_MINIMUM = 10
UNREACHABLE = frozenset({"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE"})

_silent = logging.getLogger("barnabas.cli.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def settings(bootstrap: str, **extra: object) -> dict[str, Any]:
    """Settings of a librdkafka client that keeps its own log lines off the terminal."""
    return {"bootstrap.servers": bootstrap, "client.id": "barnabas-cli", "log_level": 3, "logger": _silent, **extra}


@contextlib.contextmanager
def kafka_errors(bootstrap: str) -> Iterator[None]:
    """Turn what the cluster (or its absence) says into one line."""
    try:
        yield
    except KafkaException as error:
        raise UserError(_one_line(error.args[0], bootstrap)) from error
    except TimeoutError as error:
        raise UserError(f"no cluster answers at {bootstrap} within {TIMEOUT_S} s") from error


@contextlib.contextmanager
def admin(bootstrap: str) -> Iterator[AdminClient]:
    """An admin client that lives as long as the block (its futures die with it), and its errors in one line."""
    with kafka_errors(bootstrap):
        yield AdminClient(settings(bootstrap))


def partitions_of(client: AdminClient | Consumer | Producer, topic: str) -> list[int]:
    """The partitions of a topic; raises UserError if there is none of that name."""
    found = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise UserError(f"{topic}: {reason(found.error)}")
    return sorted(found.partitions)


def results(futures: Mapping[K, Future[T]], name: Callable[[K], str] = str, label: str = "waiting") -> dict[K, T]:
    """The results of an admin call by their key. All of them are awaited, then RequestError names every key that
    failed.
    """
    found: dict[K, T] = {}
    failures: list[tuple[K, KafkaError]] = []
    with progress(label, len(futures), minimum=PROGRESS_MINIMUM) as advance:
        for key, future in futures.items():
            try:
                found[key] = future.result(TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].name() in UNREACHABLE:
                    raise
                failures.append((key, error.args[0]))
            advance(1)
    if failures:
        message = "; ".join(f"{name(key)}: {reason(cause)}" for key, cause in failures)
        if found:
            message += f"; done all the same: {', '.join(map(name, found))}"
        raise RequestError(message, tuple(cause.name() for _, cause in failures))
    return found


def reason(cause: KafkaError) -> str:
    """What the cluster said, with the name of its error code, in one line."""
    text = " ".join(cause.str().split()).removeprefix("Broker: ")
    return f"{text} ({cause.name()})"


def _one_line(cause: KafkaError, bootstrap: str) -> str:
    if cause.name() in UNREACHABLE:
        return f"no cluster answers at {bootstrap} ({cause.str()})"
    return reason(cause)


def complete_topics(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The topics of the cluster that answers, for the shell; none if none answers at once."""
    try:
        client = AdminClient(settings(ctx.params.get("bootstrap") or default_bootstrap()))
        topics = client.list_topics(timeout=COMPLETION_TIMEOUT_S).topics
    except (KafkaException, UserError):
        return []
    return [CompletionItem(topic) for topic in sorted(topics) if topic.startswith(incomplete)]
