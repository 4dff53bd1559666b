"""What the commands that talk to a cluster share: where it is, a client for it, and its errors in one line."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from barnabas.cli.errors import UserError
from barnabas.cli.running import running_directories
from barnabas.cluster import read_cluster_file

T = TypeVar("T")
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_S = 15

_silent = logging.getLogger("barnabas.cli.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def default_bootstrap() -> str:
    """$BARNABAS_BOOTSTRAP, else the one local cluster that runs now, else 127.0.0.1:9092."""
    if "BARNABAS_BOOTSTRAP" in os.environ:
        return os.environ["BARNABAS_BOOTSTRAP"]
    clusters = [read_cluster_file(directory) for directory in running_directories()]
    found = [str(cluster["bootstrap"]) for cluster in clusters if cluster is not None]
    if len(found) > 1:
        raise UserError(f"several clusters run here: choose with --bootstrap {' or '.join(found)}")
    return found[0] if found else DEFAULT_BOOTSTRAP


def bootstrap_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--bootstrap`, for every command that needs a cluster."""
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT,...",
        default=default_bootstrap,
        show_default="$BARNABAS_BOOTSTRAP, the local cluster that runs, or 127.0.0.1:9092",
        help="Where the cluster is.",
    )(command)


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
    except KafkaError as error:
        raise UserError(_one_line(error, bootstrap)) from error
    except TimeoutError as error:
        raise UserError(f"no answer from {bootstrap} within {TIMEOUT_S} s") from error


@contextlib.contextmanager
def admin(bootstrap: str) -> Iterator[AdminClient]:
    """An admin client that lives as long as the block (its futures die with it), and its errors in one line."""
    with kafka_errors(bootstrap):
        yield AdminClient(settings(bootstrap))


def _one_line(cause: KafkaError, bootstrap: str) -> str:
    if cause.name() in ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE"):
        return f"no cluster answers at {bootstrap} ({cause.str()})"
    return f"{cause.name()}: {cause.str()}"


def results(futures: dict[Any, Future[T]]) -> dict[Any, T]:
    """The results of an admin call by their key; the first failure is raised as KafkaException."""
    return {key: future.result(TIMEOUT_S) for key, future in futures.items()}
