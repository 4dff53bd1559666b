"""The tables of `docs/compatibility.md` (tools/docs/compatibility.py, kafka_scripts.py).

`tests/test_tidy.py` compares the page with them, since any change of a table changes the page.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.apis.table import TABLE as BROKER_APIS
from barnabas.broker.requests.api import Table
from barnabas.config.table.keys import OWN_KEYS
from barnabas.config.table.keys import TABLE as KEYS
from barnabas.controller.apis.table import TABLE as CONTROLLER_APIS
from barnabas.protocol.api_keys import ROWS, ApiKey
from tests.clients.test_connect import MAIN_CLASSES as CONNECT_CLASSES
from tests.support.kafka.kafka_tools import MAIN_CLASSES
from tools.docs import compatibility
from tools.docs.kafka_scripts import SCRIPTS, Script
from tools.docs.stage import ROOT

#: Files that name every script, and run none.
TABLES = {"kafka_tools.py", Path(__file__).name}


@pytest.fixture(scope="module")
def calls() -> str:
    """The text of every test."""
    return "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.name not in TABLES)


def test_a_page_without_a_part_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 parts named apis"):
        compatibility.updated("")


def test_every_api_has_a_row() -> None:
    rows = [line.split(" | ")[0].strip("| ") for line in compatibility.apis().splitlines()[2:]]
    assert rows == [str(int(key)) for key in ROWS] == [str(key) for key in range(93)]


@pytest.mark.parametrize("table", [BROKER_APIS, CONTROLLER_APIS], ids=["brokers", "controllers"])
def test_every_version_of_kafka_is_served(table: Table) -> None:
    """`api_keys.py` has the versions of 4.3.1's messages; a test of the protocol compares them with the reference."""
    pushes = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)  # of controllers; 4.0 removed them
    served = {key: api.versions for key, api in table.items() if key not in pushes}
    assert served == {key: (ROWS[key].min_version, ROWS[key].max_version) for key in served}


def test_every_setting_without_an_effect_is_named_once() -> None:
    text = compatibility.settings()
    for key in (key for key in KEYS if key.name not in OWN_KEYS):
        assert text.count(f"`{key.name}`") == (0 if key.honoured else 1), key.name


def test_a_protocol_works_if_its_api_is_served() -> None:
    for row in compatibility.PROTOCOLS:
        works = f"| {row.name} | works |" in compatibility.protocols()
        assert works == (not row.why_not), row.name
        assert row.api in BROKER_APIS, row.name


def test_scripts_are_in_order_and_once() -> None:
    names = [script.name for script in SCRIPTS]
    assert names == sorted(set(names))
    assert {*MAIN_CLASSES, *CONNECT_CLASSES} == {script.name for script in SCRIPTS if runs(script)}


def runs(script: Script) -> bool:
    """Whether tests run a script: each that works, and `kafka-streams-groups`, which finds no groups."""
    return not script.why_not or script.name == "kafka-streams-groups"


@pytest.mark.parametrize("script", list(filter(runs, SCRIPTS)), ids=lambda script: script.name)
def test_a_script_that_works_is_run_by_a_test(script: Script, calls: str) -> None:
    assert f'"{script.name}"' in calls.replace(f'"{script.name}": "', "")


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script.why_not], ids=lambda script: script.name)
def test_a_script_that_does_not_work_has_a_sentence(script: Script) -> None:
    assert len(script.why_not.split()) > 5
