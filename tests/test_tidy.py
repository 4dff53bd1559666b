"""Taste, enforced: which package may import which, what may not be written, where tests belong.

A rule is a row; every rule proves on an example of its own that it can fail.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The folders of the code. Three of them stand at the top of the repository and are linked into `barnabas/`, which is
# where they are imported from.
PACKAGES = ("barnabas", "broker", "controller", "metrics")

SHARED = tuple(
    f"barnabas.{name}"
    for name in (
        *("protocol", "common", "config", "client", "cluster", "control", "faults", "cli", "testing", "drills"),
        "metrics",
    )
)

# A module may import from its own layer and from the layers that its row names: who is longest a prefix decides.
MAY_IMPORT = {
    "barnabas.protocol": (),
    "barnabas.common": ("barnabas.protocol",),
    "barnabas.config": ("barnabas.protocol", "barnabas.common"),
    "barnabas.metrics": ("barnabas.common", "barnabas.config"),
    "barnabas.client": ("barnabas.protocol", "barnabas.common"),
    "barnabas.cluster": ("barnabas.protocol", "barnabas.common", "barnabas.client"),
    "barnabas.control": ("barnabas.common", "barnabas.cluster"),
    "barnabas.faults": ("barnabas.protocol", "barnabas.common", "barnabas.cluster", "barnabas.control"),
    "barnabas.cli": (*SHARED, "barnabas.broker.storage"),
    "barnabas.testing": SHARED,
    "barnabas.drills": SHARED,
    "barnabas.broker.storage": ("barnabas.protocol", "barnabas.common", "barnabas.config", "barnabas.metrics"),
    "barnabas.broker.replication": (*SHARED, "barnabas.broker.storage", "barnabas.broker"),
    "barnabas.broker.coordinators": (
        *SHARED,
        "barnabas.broker.storage",
        "barnabas.broker.replication",
        "barnabas.broker",
    ),
    "barnabas.broker": SHARED,
    "barnabas.controller": (*SHARED, "barnabas.broker"),
}
# Lower layers of `broker` never reach up to these, whatever the row above says.
UPPER = {
    "barnabas.broker.storage": tuple(
        f"barnabas.broker.{name}" for name in ("replication", "coordinators", "apis", "main")
    ),
    "barnabas.broker.replication": tuple(
        f"barnabas.broker.{name}" for name in ("coordinators", "main", "broker_server", "apis.table")
    ),
    "barnabas.broker.coordinators": tuple(
        f"barnabas.broker.{name}" for name in ("main", "broker_server", "apis.table")
    ),
    "barnabas.controller": tuple(
        f"barnabas.broker.{name}" for name in ("replication", "coordinators", "main", "broker_server")
    ),
}


@dataclass(frozen=True)
class Ban:
    """Something that is not written here, what to write instead, and where it is allowed all the same."""

    name: str
    pattern: str
    instead: str
    allowed: tuple[str, ...]
    example: str


BANS = (
    Ban(
        "clock",
        r"\btime\.(time|time_ns|monotonic|monotonic_ns|perf_counter)\(",
        "barnabas.common.clock",
        ("barnabas/common/clock.py",),
        "now = time.time()",
    ),
    Ban("sleep", r"\btime\.sleep\(", "an event, a deadline or the scheduler", (), "time.sleep(1)"),
    Ban("bare except", r"^\s*except:", "the exception that is expected", (), "    except:"),
    Ban(
        "open",
        r"(?<![\w.])(?<!def )open\(",
        "barnabas.common.files",
        ("barnabas/common/files.py",),
        "with open(path) as f:",
    ),
    Ban("unfinished", r"\b(TODO|FIXME|XXX)\b", "the finished thing", (), "# TODO later"),
    Ban("print", r"(?<![\w.])print\(", "logging", ("barnabas/cli/", "/main.py", "controller/recover.py"), "print('x')"),
)


def sources() -> Iterator[tuple[Path, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text()


def module_name(path: Path) -> str:
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return name if is_in(name, "barnabas") else f"barnabas.{name}"


def layer(module: str) -> str:
    """The longest row of MAY_IMPORT that this module belongs to; `barnabas` itself belongs to none."""
    return max((row for row in MAY_IMPORT if is_in(module, row)), key=len, default="")


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "barnabas":
            yield from (f"barnabas.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def broken_imports(module: str, source: str) -> list[str]:
    """The imports of our own packages that the tables do not allow to this module."""
    row = layer(module)
    allowed = (row, "barnabas.__version__", *MAY_IMPORT.get(row, ()))
    ours = [name for name in imports(source) if name.split(".")[0] in PACKAGES]  # a bare `broker` is never allowed
    return [
        name
        for name in ours
        if not any(is_in(name, package) for package in allowed)
        or any(is_in(name, package) for package in UPPER.get(row, ()))
    ]


def broken_bans(ban: Ban, path: str, source: str) -> list[str]:
    """The lines that break the ban."""
    if any(part in path for part in ban.allowed):
        return []
    return [
        f"{path}:{number}: {line.strip()}"
        for number, line in enumerate(source.splitlines(), 1)
        if re.search(ban.pattern, line)
    ]


def test_imports_go_one_way() -> None:
    broken = {str(path): found for path, source in sources() if (found := broken_imports(module_name(path), source))}
    assert broken == {}


def test_the_import_rule_can_fail() -> None:
    upwards = "from barnabas.broker.replication.partition import Partition"
    assert broken_imports("barnabas.broker.storage.log", upwards) != []
    assert broken_imports("barnabas.protocol.codec", "import barnabas.common.clock") != []
    assert broken_imports("barnabas.metrics.http", "from barnabas.broker.handlers import Handler") != []
    assert broken_imports("barnabas.broker.storage.log", "from barnabas.common.clock import Clock") == []
    assert broken_imports("barnabas.broker.main", "from broker.handlers import Handler") != []


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.name)
def test_bans_hold(ban: Ban) -> None:
    broken = [line for path, source in sources() for line in broken_bans(ban, str(path), source)]
    assert broken == [], f"use {ban.instead}"


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.name)
def test_every_ban_can_fail(ban: Ban) -> None:
    assert broken_bans(ban, "broker/x.py", ban.example) != []


def test_locks_say_what_they_guard() -> None:
    """A comment beside the lock, or one that names it beside what it guards, says what the lock is for."""
    broken = []
    for path, source in sources():
        lines = source.splitlines()
        for number, line in enumerate(lines):
            if re.search(r"threading\.(R?Lock|Condition)\(", line):
                name = line.partition("=")[0].split(":")[0].strip().removeprefix("self.")
                described = "#" in line or any("#" in near for near in lines[max(0, number - 3) : number])
                named = any("#" in other and name in other.partition("#")[2] for other in lines)
                if not described and not named:
                    broken.append(f"{path}:{number + 1}")
    assert broken == []


def test_test_files_mirror_modules() -> None:
    """tests/broker/storage/test_log.py tests broker/storage/log.py, or its docstring names what it tests."""
    strangers = []
    for package in PACKAGES:
        for path in (ROOT / "tests" / package).rglob("test_*.py"):
            module = path.relative_to(ROOT / "tests").with_name(path.name.removeprefix("test_"))
            if not (ROOT / module).exists() and ast.get_docstring(ast.parse(path.read_text())) is None:
                strangers.append(str(path.relative_to(ROOT)))
    assert strangers == []


def compiled_modules() -> tuple[str, ...]:
    """What setup.py has mypyc compile."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "COMPILED":
            return tuple(ast.literal_eval(node.value))
    raise AssertionError("setup.py names no COMPILED modules")


def not_to_be_compiled(source: str) -> list[str]:
    """What mypy allows and mypyc gets wrong: it finds out when it runs, or its C compiler does."""
    found = [f"attribute {name}: a word of C" for name in ("_thread",) if re.search(rf"self\.{name}\b", source)]
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            kinds: dict[str, set[str]] = {}
            for handler in ast.walk(function):
                if isinstance(handler, ast.ExceptHandler) and handler.name and handler.type:
                    kinds.setdefault(handler.name, set()).add(ast.unparse(handler.type))
            found += [f"{function.name}: {name} has two types" for name in kinds if len(kinds[name]) > 1]
    return found


@pytest.mark.parametrize("module", compiled_modules())
def test_what_is_compiled_can_be(module: str) -> None:
    assert not_to_be_compiled((ROOT / module).read_text()) == []


def test_the_rule_for_compiled_modules_can_fail() -> None:
    assert not_to_be_compiled("self._thread = 1") != []
    assert not_to_be_compiled("def f():" + textwrap.indent(_two_handlers("OSError as e", "KeyError as e"), " ")) != []
    assert not_to_be_compiled("def f():" + textwrap.indent(_two_handlers("OSError as e", "KeyError as f"), " ")) == []


def _two_handlers(first: str, second: str) -> str:
    return f"\ntry:\n  pass\nexcept {first}:\n  pass\nexcept {second}:\n  pass\n"
