"""CONTRIBUTING.md: its worked examples are carried out in a copy of the repository, as they are written there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.docs.stage import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
COPIED = ("barnabas", "broker", "controller", "metrics", "tests", "docs", "setup.cfg", "setup.py")


class Insertion(NamedTuple):
    """A line of an example that is written into a file: before or behind the first line that has `at` in it."""

    path: str
    first_line: str
    at: str
    is_before: bool = False


#: What the examples add to files that exist; the text says where in words.
INSERTIONS = (
    Insertion("broker/apis/table.py", "    k07_controlled_shutdown,", "    k06_update_metadata,"),
    Insertion("broker/apis/table.py", "    k07_controlled_shutdown.API,", "    k06_update_metadata.API,"),
    Insertion(
        "broker/authorization/table.py",
        '    ApiKey.CONTROLLED_SHUTDOWN: "it',
        "    ApiKey.EXPIRE_DELEGATION_TOKEN:",
    ),
    Insertion(
        "barnabas/protocol/data/releases.py",
        '    ApiKey.CONTROLLED_SHUTDOWN: "2.0',
        "    ApiKey.METADATA",
    ),
    Insertion("barnabas/config/table/keys_own.py", '    Key("barnabas.auto.create', "OWN_ROWS: "),
    Insertion(
        "broker/metadata/auto_topic_creation.py",
        "        prefix = self._config.barnabas_auto",
        "        wanted = self._begin(names)",
        is_before=True,
    ),
    Insertion(
        "tests/broker/apis/test_metadata_apis.py",
        "from barnabas.broker.settings.dynamic_config",
        "from barnabas.protocol.errors",
        is_before=True,
    ),
    Insertion(
        "tests/broker/apis/test_metadata_apis.py",
        "def test_only_topics_with_the_prefix",
        "def test_many_unknown_topics",
        is_before=True,
    ),
    Insertion("metrics/table/rows_own.py", "METADATA_TOPICS", "SCRAPE_SECONDS"),
    Insertion(
        "broker/monitoring/broker_metrics.py", "        c.METADATA_TOPICS", "c.METADATA_LAST_APPLIED_RECORD_OFFSET:"
    ),
    Insertion(
        "tests/broker/monitoring/test_broker_metrics.py",
        "def test_the_topics_in_the_metadata_cache",
        "def test_a_removed_topic_loses",
        is_before=True,
    ),
    Insertion("barnabas/faults/definition.py", '    "hang_up": _yes', '    "disconnect": _yes'),
    Insertion("barnabas/faults/definition.py", '    "hang_up": (*_REQUEST', '    "disconnect": ('),
    Insertion("barnabas/faults/definition.py", "    hang_up: bool", "    disconnect: bool"),
    Insertion("broker/faults/actions/wire.py", "def hang_up(", "def blackhole(", is_before=True),
    Insertion("broker/faults/actions/wire.py", '    "hang_up": hang_up', '    "disconnect": disconnect'),
    Insertion("docs/faults.md", "| `hang_up: true`", "| `blackhole: true`", is_before=True),
    Insertion("tests/barnabas/faults/test_definition.py", '    {"hang_up": True', '    {"disconnect": True'),
    Insertion(
        "tests/broker/faults/actions/test_wire.py",
        "from barnabas.broker.requests.request import Action",
        "from barnabas.common.topic_partition",
        is_before=True,
    ),
    Insertion(
        "tests/broker/faults/actions/test_wire.py", "def test_a_hang_up", "def test_a_black_hole", is_before=True
    ),
    Insertion("barnabas/cli/main.py", '    "ping": (', '    "topic": (', is_before=True),
    Insertion("docs/commands.md", "| `barnabas ping`", "| `barnabas stray list", is_before=True),
)
#: What shows that the examples work, the tests that they bring with them among it.
PROOF = (
    "tests/broker/apis/test_k07_controlled_shutdown.py",
    "tests/broker/apis/test_table.py",
    "tests/barnabas/protocol/data/test_releases.py",
    "tests/broker/authorization/test_table.py",
    "tests/broker/apis/test_metadata_apis.py",
    "tests/broker/metadata/test_auto_topic_creation.py",
    "tests/barnabas/config/test_honoured.py",
    "tests/broker/monitoring/test_broker_metrics.py",
    "tests/metrics/table/test_catalogue.py",
    "tests/barnabas/faults/test_definition.py",
    "tests/broker/faults/actions/test_wire.py",
    "tests/barnabas/cli/test_main.py",
    "tests/barnabas/cli/admin/test_ping.py",
)


def blocks() -> list[str]:
    """The code of the examples: each block without its indentation in the list."""
    found = re.findall(r"^( *)```\w*\n(.*?)^ *```$", TEXT, re.M | re.S)
    return [_without(indent, code) for indent, code in found]


def _without(indent: str, code: str) -> str:
    return "".join(line.removeprefix(indent) for line in code.splitlines(keepends=True))


def new_files() -> dict[str, str]:
    """The files that the examples add: a list item begins with the path, and its block with a docstring."""
    found = re.findall(
        r"^\d\. `([^`]+)`[^\n]*(?:\n(?!\d\.|#)[^\n]*)*?\n\n? *```python\n( *\"\"\".*?)^ *```$", TEXT, re.M | re.S
    )
    return {path: textwrap.dedent(code) for path, code in found}


def snippet(first_line: str) -> str:
    """The lines of a block from the one that begins so, up to the next `...`."""
    (block,) = [block for block in blocks() if f"\n{first_line}" in f"\n{block}"]
    lines = block[f"\n{block}".index(f"\n{first_line}") :]
    return re.split(r"^ *\.\.\.\n", lines, flags=re.M)[0].rstrip("\n") + "\n"


def insert(path: Path, insertion: Insertion) -> None:
    """Carry an insertion out."""
    lines = path.read_text().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if insertion.at in line)
    added = snippet(insertion.first_line)
    if added.startswith("def "):
        added += "\n\n"
    lines.insert(number if insertion.is_before else number + 1, added)
    path.write_text("".join(lines))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with every example in it."""
    into = tmp_path_factory.mktemp("repository")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, into / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, into / name)
    for name, code in new_files().items():
        assert not (into / name).exists(), name
        (into / name).write_text(code)
    for insertion in INSERTIONS:
        insert(into / insertion.path, insertion)
    return into


def test_the_examples_are_found() -> None:
    assert list(new_files()) == [
        "broker/apis/k07_controlled_shutdown.py",
        "tests/broker/apis/test_k07_controlled_shutdown.py",
        "barnabas/cli/admin/ping.py",
        "tests/barnabas/cli/admin/test_ping.py",
    ]


def test_the_examples_work(changed: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PROOF]
    done = subprocess.run(command, cwd=changed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
