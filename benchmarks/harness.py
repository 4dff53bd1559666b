"""The common start of the benchmarks' commands: a temporary directory and the selected systems."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from benchmarks.load.clients import ClientError
from benchmarks.load.compiler import CompilerError
from benchmarks.load.load_generator import LoadGeneratorError
from benchmarks.report.figures import OURS, THEIRS
from benchmarks.systems import Make, apache, barnabas
from tests.support.kafka.kafka_jars import KafkaRuntimeError, kafka_runtime

systems_option = click.option(
    "--systems", type=click.Choice(["both", "barnabas", "apache"]), default="both", show_default=True
)


@contextmanager
def directory(name: str) -> Iterator[Path]:
    """Create a directory for one run and remove it afterwards. A missing program or a failed client ends the process
    with a one-line message.
    """
    made = Path(tempfile.mkdtemp(prefix=f"barnabas-{name}-"))
    try:
        yield made
    except (KafkaRuntimeError, CompilerError, LoadGeneratorError, ClientError) as error:
        sys.exit(str(error))
    finally:
        shutil.rmtree(made, ignore_errors=True)


def chosen(systems: str) -> dict[str, Make]:
    """Return a factory for each system that `systems_option` selects, by name."""
    makes: dict[str, Make] = {}
    if systems in ("both", "apache"):
        makes[THEIRS] = apache(kafka_runtime())
    if systems in ("both", "barnabas"):
        makes[OURS] = barnabas()
    return makes
