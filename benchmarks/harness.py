"""What every benchmark's command begins with: a directory, Apache Kafka's jars, and somewhere to tell what happens."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from benchmarks.clients import ClientError
from benchmarks.figures import OURS, THEIRS
from benchmarks.load_generator import LoadGeneratorError
from benchmarks.systems import Make, apache, barnabas
from tests.support.kafka_jars import KafkaRuntimeError, kafka_runtime

systems_option = click.option(
    "--systems", type=click.Choice(["both", "barnabas", "apache"]), default="both", show_default=True
)


@contextmanager
def directory(name: str) -> Iterator[Path]:
    """A directory for one run of a benchmark, removed afterwards. What cannot be had or does not work is told in one
    line, and ends the process.
    """
    made = Path(tempfile.mkdtemp(prefix=f"barnabas-{name}-"))
    try:
        yield made
    except (KafkaRuntimeError, LoadGeneratorError, ClientError) as error:
        sys.exit(str(error))
    finally:
        shutil.rmtree(made, ignore_errors=True)


def chosen(systems: str) -> dict[str, Make]:
    """What makes the systems that `systems_option` asks for, by name."""
    makes: dict[str, Make] = {}
    if systems in ("both", "apache"):
        makes[THEIRS] = apache(kafka_runtime())
    if systems in ("both", "barnabas"):
        makes[OURS] = barnabas()
    return makes
