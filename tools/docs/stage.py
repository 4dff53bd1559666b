"""Puts the pages of the site into one tree that mirrors the repository, and writes the page with the navigation.

The pages are Markdown files of the repository. A file that a page links to and that is no page (a picture, a source
file) is copied beside it, so that its link works on the site too. Links to what is not there are left as they are:
Sphinx reports them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

#: The navigation: headings, and the pages under each, in order; `*` stands for the others of a folder, by name.
NAVIGATION: Final[dict[str, tuple[str, ...]]] = {
    "Guides": (
        "docs/start.md",
        "docs/tour.md",
        "docs/testing.md",
        "docs/simulation.md",
        "docs/faults.md",
        "docs/clock.md",
        "docs/observing.md",
        "docs/operations.md",
        "docs/security.md",
        "docs/pipeline.md",
    ),
    "Drills": ("docs/drills/README.md", "docs/drills/*"),
    "How it compares": ("docs/compatibility.md", "benchmarks/README.md", "docs/platforms.md", "docs/packaging.md"),
    "Reference": ("docs/commands.md", "docs/reference/README.md", "docs/reference/*", "docs/glossary.md"),
    "Internals": ("ARCHITECTURE.md", "docs/internals/README.md", "docs/internals/*"),
    "Contributing": (
        "CONTRIBUTING.md",
        "docs/contributing/*",
        "tests/README.md",
        "tests/simulation/README.md",
        "tests/simulation/MUTANTS.md",
        "examples/pytest/README.md",
        "docs/dependencies.md",
    ),
    "Decisions": ("docs/decisions/README.md", "docs/decisions/*"),
    "Project": ("README.md", "CHANGELOG.md", "SECURITY.md"),
}
#: Folders that are no part of the repository.
_PASSED_OVER: Final = frozenset({"build", "dist", "data", "node_modules"})

_LINK: Final = re.compile(r"\]\(<?([^)\s>]+)>?\)")
_CODE: Final = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)


def pages() -> list[Path]:
    """Return every Markdown file of the repository, relative to it."""
    found = []
    for directory, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        found += [Path(directory, name).relative_to(ROOT) for name in files if name.endswith(".md")]
    return sorted(found)


def links(text: str) -> list[str]:
    """Return the targets of the links in a page, as they are written; code is passed over."""
    return _LINK.findall(_CODE.sub("", text))


def is_local(target: str) -> bool:
    """Return whether a link leads to a file, and not to an address or within its own page."""
    return not target.startswith("#") and re.match(r"[a-z]+:", target) is None


def stage(into: Path) -> None:
    """Copy the pages and what they link to, then write `index.md`."""
    for page in pages():
        text = (ROOT / page).read_text()
        copy = into / page
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
        for target in filter(is_local, links(text)):
            _copy_file(page.parent / target.partition("#")[0], into)
    reference = into / "docs" / "reference"
    generated = sorted(path for path in reference.glob("*.md") if path.name != "README.md")
    with (reference / "README.md").open("a") as file:
        file.writelines(f"\n- [{_title(path)}]({path.name})" for path in generated)
    (into / "index.md").write_text(index(into))


def index(staged: Path) -> str:
    """Return the first page. It is short; the README cannot be used, since its links have another base."""
    lines = [
        "# Barnabas",
        "",
        "A Kafka broker cluster in Python. Any Kafka client, tool or application uses it unchanged.",
        "",
        "Begin with [the overview](README.md) or [getting started](docs/start.md).",
        "",
    ]
    for caption, names in NAVIGATION.items():
        lines += ["```{toctree}", f":caption: {caption}", ":maxdepth: 1", ""]
        lines += [str(page) for page in dict.fromkeys(_expanded(names, staged))]
        lines += ["```", ""]
    return "\n".join(lines)


def _expanded(names: tuple[str, ...], staged: Path) -> Iterator[Path]:
    for name in names:
        if name.endswith("*"):
            for path in sorted((staged / name).parent.glob("*.md")):
                if path.name != "README.md":
                    yield path.relative_to(staged)
        else:
            yield Path(name)


def _copy_file(target: Path, into: Path) -> None:
    """Copy a linked file that is no page; `target` is relative to the repository, and may have `..` in it."""
    source = (ROOT / target).resolve()
    if source.suffix == ".md" or not source.is_file() or not source.is_relative_to(ROOT):
        return
    copy = into / source.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, copy)


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("# ")
