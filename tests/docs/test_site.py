"""The documentation: the site builds without a warning, the reference has every row, and names of files are true.

It tests tools/docs: markdown.py, python_api.py, reference.py and stage.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from barnabas.broker.apis.table import TABLE as BROKER_APIS
from barnabas.broker.authorization.table import BROKER_RIGHTS, CONTROLLER_RIGHTS
from barnabas.config.table.keys import DYNAMIC_KEYS
from barnabas.config.table.keys import TABLE as KEYS
from barnabas.controller.apis.table import TABLE as CONTROLLER_APIS
from barnabas.metrics.names import family_names
from barnabas.metrics.table.catalogue import METRICS
from barnabas.protocol.api_keys import ROWS
from barnabas.protocol.errors import ErrorCode
from tools.docs.markdown import cell, code_cell, docstring, escape, table
from tools.docs.reference import PAGES, commands
from tools.docs.stage import ROOT, is_local, links, pages

#: Files that texts name in backticks: `broker/handlers.py`, `docs/internals/`.
PATH = re.compile(
    r"(?:barnabas|benchmarks|broker|controller|dashboards|docs|examples|metrics|pipeline|tests|tools)/[\w./-]*"
)
#: Pages that show paths of files that do not exist yet: the worked examples.
WITH_EXAMPLES = {"CONTRIBUTING.md"}


def local_links() -> Iterator[tuple[Path, str]]:
    for page in pages():
        for target in filter(is_local, links((ROOT / page).read_text())):
            yield page, target.partition("#")[0]


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_lead_to_files(page: Path) -> None:
    """Every page, also those that are not on the site, as it is read in the repository."""
    targets = [target for of, target in local_links() if of == page]
    assert [target for target in targets if not (ROOT / page.parent / target).exists()] == []


@pytest.mark.parametrize("page", [page for page in pages() if str(page) not in WITH_EXAMPLES], ids=str)
def test_named_files_exist(page: Path) -> None:
    named = re.findall(r"`([^`\s]+)`", (ROOT / page).read_text())
    paths = [name for name in named if PATH.fullmatch(name)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


class Page(HTMLParser):
    """What a page of the site loads, and what its links and anchors are."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address of what a tag loads."""
        names = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.loaded.append(names.get("src") or "")
        if tag == "link" and names.get("rel") in ("stylesheet", "preload", "icon"):
            self.loaded.append(names.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a warning is an error."""
    into = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "tools.docs", "--into", str(into)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return into / "html"


def test_every_page_is_on_the_site(site: Path) -> None:
    html = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    assert [page for page in pages() if page not in html and page.parts[0] != "tests"] == []
    assert {Path("docs", "reference", f"{name}.md") for name in PAGES} <= html


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = {address for path in site.rglob("*.html") for address in Page(path).loaded}
    assert [address for address in loaded if re.match(r"[a-z]+:|//", address) and not address.startswith("data:")] == []


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text("# A page\n\n[no such page](nowhere.md)\n")
    options = ["--builder", "html", "--fail-on-warning", "--quiet", "--conf-dir", str(ROOT / "tools" / "docs")]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(tmp_path / "html")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode != 0
    assert "nowhere.md" in built.stderr
    shutil.rmtree(source)


# The reference


def test_it_names_every_api() -> None:
    page = PAGES["apis"]()
    rows = [*BROKER_APIS.values(), *CONTROLLER_APIS.values()]
    assert [api.name for api in rows if f"| {int(api.key)} | {api.name} |" not in page] == []


def test_it_names_every_right() -> None:
    page = PAGES["rights"]()
    rows = [row for rights in (BROKER_RIGHTS, CONTROLLER_RIGHTS) for rows in rights.values() for row in rows]
    assert page.count("refused: ") == sum(row.error != ErrorCode.NONE for row in rows)
    names = {(row.key, row.operation.name, row.resource.name) for row in rows}
    lines = page.splitlines()
    assert [
        name
        for key, operation, resource in names
        for name in [ROWS[key].name]
        if not any(line.startswith(f"| {name} |") and f"`{operation}`" in line and resource in line for line in lines)
    ] == []


def test_it_names_every_setting() -> None:
    page = PAGES["settings"]()
    names = [key.name for key in KEYS] + list(DYNAMIC_KEYS)
    assert [name for name in names if f"| `{name}` | " not in page] == []


def test_it_names_every_metric_and_its_series() -> None:
    page = PAGES["metrics"]()
    assert [row.name for row in METRICS if f"name={row.name}`" not in page] == []
    assert [name for row in METRICS for name in family_names(row) if f"`{name}`" not in page] == []


def test_it_names_every_command() -> None:
    page = PAGES["commands"]()
    found = list(commands())
    assert "barnabas topic create" in found
    assert [name for name in found if f" {name}\n" not in page] == []


def test_it_names_every_error() -> None:
    page = PAGES["errors"]()
    assert [error.name for error in ErrorCode if f"| {int(error)} | `{error.name}` |" not in page] == []


def test_it_shows_python_signatures_with_their_docstrings() -> None:
    page = PAGES["python"]()
    assert "cluster(brokers: int=1, *," in page
    assert "`kill(node_id: int) -> None`" in page
    assert "(self" not in page


# Markdown


def test_text_is_shown_as_it_stands() -> None:
    assert escape("__consumer_offsets and `a_b` < *") == r"\_\_consumer\_offsets and `a_b` \< \*"
    assert cell("a | b\nc") == r"a \| b c"
    assert code_cell("a|b") == r"`a\|b`"
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |\n"


def test_docstrings_keep_paragraphs_lists_and_drawings() -> None:
    text = """First line
    goes on.

    1. one
       more
    2. two

        a ---> b
    """
    assert docstring(text) == "First line goes on.\n\n1. one more\n2. two\n\n```text\n    a ---> b\n```\n"
