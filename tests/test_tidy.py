"""The rules of the code: which package may import which, what is banned, and which test covers which module.

Every rule has an example of its own on which it fails.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.docs import compatibility

ROOT = Path(__file__).resolve().parent.parent
# The folders of the code. Three of them are at the top of the repository; `barnabas/` links to them, and they are
# imported from there.
PACKAGES = ("barnabas", "broker", "controller", "metrics")

SHARED = tuple(
    f"barnabas.{name}"
    for name in (
        *(
            "protocol",
            "common",
            "config",
            "security",
            "client",
            "cluster",
            "control",
            "faults",
            "clock",
            "cli",
            "testing",
            "drills",
        ),
        "metrics",
    )
)

# A module may import from its own layer and from the layers in its row. The row with the longest prefix applies.
MAY_IMPORT = {
    "barnabas.protocol": (),
    "barnabas.common": ("barnabas.protocol",),
    "barnabas.config": ("barnabas.protocol", "barnabas.common"),
    "barnabas.metrics": ("barnabas.common", "barnabas.config", "barnabas.security"),
    "barnabas.security": ("barnabas.protocol", "barnabas.common", "barnabas.config"),
    "barnabas.client": ("barnabas.protocol", "barnabas.common", "barnabas.config", "barnabas.security"),
    "barnabas.cluster": ("barnabas.protocol", "barnabas.common", "barnabas.security", "barnabas.client"),
    "barnabas.control": ("barnabas.common", "barnabas.cluster"),
    "barnabas.faults": ("barnabas.protocol", "barnabas.common", "barnabas.cluster", "barnabas.control"),
    "barnabas.clock": ("barnabas.common", "barnabas.cluster", "barnabas.faults"),
    "barnabas.cli": (*SHARED, "barnabas.broker.storage"),
    "barnabas.testing": SHARED,
    # The machine knows nothing of Kafka; its disk is the file system that forgets what was not flushed.
    "barnabas.testing.simulation.machine": ("barnabas.common",),
    "barnabas.testing.simulation": (*SHARED, "barnabas.broker", "barnabas.controller"),
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
    "barnabas.server": (*SHARED, "barnabas.broker", "barnabas.controller"),
}
# Lower layers of `broker` never reach up to these, whatever the row above says.
UPPER = {
    "barnabas.broker.storage": tuple(
        f"barnabas.broker.{name}" for name in ("replication", "coordinators", "apis", "main")
    ),
    "barnabas.broker.replication": tuple(
        f"barnabas.broker.{name}" for name in ("coordinators", "main", "broker_server", "wiring", "apis")
    ),
    "barnabas.broker.coordinators": tuple(
        f"barnabas.broker.{name}" for name in ("main", "broker_server", "wiring", "apis")
    ),
    "barnabas.controller": tuple(
        f"barnabas.broker.{name}" for name in ("replication", "coordinators", "main", "broker_server", "wiring")
    ),
}


LOOSE_FILES_MAX = 12
# Folders of data that one test goes through: tests/barnabas/protocol/test_reference.py checks every message.
CLAIMED_AS_A_WHOLE = ("barnabas/protocol/messages/",)


@dataclass(frozen=True)
class Ban:
    """A banned pattern, its replacement, and the files in which it is allowed."""

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
        ("barnabas/common/clock.py", "barnabas/common/clocks/wall.py"),
        "now = time.time()",
    ),
    Ban("sleep", r"\btime\.sleep\(", "an event, a deadline or the scheduler", (), "time.sleep(1)"),
    Ban("bare except", r"^\s*except:", "the exception that is expected", (), "    except:"),
    Ban(
        "open",
        r"(?<![\w.])(?<!def )open\(",
        "barnabas.common.disk.files",
        ("barnabas/common/disk/files.py",),
        "with open(path) as f:",
    ),
    Ban("unfinished", r"\b(TODO|FIXME|XXX)\b", "the finished thing", (), "# TODO later"),
    Ban(
        "print",
        r"(?<![\w.])print\(",
        "logging",
        ("barnabas/cli/", "/main.py", "controller/recover.py", "controller/metadata/format.py"),
        "print('x')",
    ),
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
    """The imports of our own packages that the tables forbid this module."""
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
    assert broken_imports("barnabas.broker.storage.log.log", upwards) != []
    assert broken_imports("barnabas.protocol.codec", "import barnabas.common.clock") != []
    assert broken_imports("barnabas.metrics.http", "from barnabas.broker.handlers import Handler") != []
    assert broken_imports("barnabas.broker.storage.log.log", "from barnabas.common.clock import Clock") == []
    assert broken_imports("barnabas.broker.main", "from broker.handlers import Handler") != []


def missing_modules(source: str) -> list[str]:
    """The modules of the tests that a source imports and that do not exist."""
    names = [name for name in imports(source) if is_in(name, "tests")]
    paths = [(name, ROOT / name.replace(".", "/")) for name in names]
    return [name for name, path in paths if not path.is_dir() and not path.with_suffix(".py").is_file()]


def test_tests_import_existing_modules() -> None:
    broken = {
        str(path.relative_to(ROOT)): found
        for folder in ("tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if (found := missing_modules(path.read_text()))
    }
    assert broken == {}


def test_the_rule_for_modules_of_tests_can_fail() -> None:
    assert missing_modules("from tests.support.no_such_module import x") != []
    assert missing_modules("from tests.support.waiting import eventually") == []


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.name)
def test_bans_hold(ban: Ban) -> None:
    broken = [line for path, source in sources() for line in broken_bans(ban, str(path), source)]
    assert broken == [], f"use {ban.instead}"


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.name)
def test_every_ban_can_fail(ban: Ban) -> None:
    assert broken_bans(ban, "broker/x.py", ban.example) != []


def test_locks_say_what_they_guard() -> None:
    """A comment describes each lock: beside it, or beside the state that it guards."""
    broken = []
    for path, source in sources():
        lines = source.splitlines()
        for number, line in enumerate(lines):
            if re.search(r"threading\.(R?Lock|Condition)\(|(?<!def )\bnew_r?lock\(", line):
                name = line.partition("=")[0].split(":")[0].strip().removeprefix("self.")
                described = "#" in line or any("#" in near for near in lines[max(0, number - 3) : number])
                named = any("#" in other and name in other.partition("#")[2] for other in lines)
                if not described and not named:
                    broken.append(f"{path}:{number + 1}")
    assert broken == []


def modules() -> dict[str, Path]:
    """Our modules by name, each with its file relative to the root; a package is its `__init__.py`."""
    return {module_name(path): path for path, _ in sources()}


def import_graph() -> dict[str, set[str]]:
    """The modules that each module imports: at its top, inside functions, or for types only."""
    names = modules()
    graph: dict[str, set[str]] = {}
    for path, source in sources():
        found = graph[module_name(path)] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                found.update(members & names.keys() or {node.module})
        found &= names.keys() - {module_name(path)}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            position = stack.index(name)
            if len(stack) - position > 1:
                found.append(sorted(stack[position:]))
            del stack[position:]

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_no_imports_form_a_circle() -> None:
    assert circles(import_graph()) == []


def test_the_circle_rule_can_fail() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def crowded(paths: Iterable[Path]) -> dict[str, int]:
    """The folders with too many loose files, and how many each has.

    A file that holds one row of an API table (`k00_produce.py`) belongs to a set, so it is not loose.
    """
    loose = [path for path in paths if path.name != "__init__.py" and not re.match(r"k\d\d_", path.name)]
    counts = Counter(str(path.parent) for path in loose)
    return {folder: count for folder, count in counts.items() if count > LOOSE_FILES_MAX}


def test_folders_have_few_loose_files() -> None:
    assert crowded(modules().values()) == {}
    others = [
        path
        for folder in ("benchmarks", "pipeline", "dashboards", "tools")
        for path in Path(ROOT, folder).rglob("*.py")
    ]
    assert crowded(path for path in others if path.name != "__main__.py") == {}


def test_the_rule_of_loose_files_can_fail() -> None:
    assert crowded(Path(f"broker/file_{number}.py") for number in range(13)) == {"broker": 13}
    assert crowded(Path(f"broker/k{number:02}_api.py") for number in range(13)) == {}


def claims() -> dict[Path, str]:
    """The module docstring of each test file; the key is the file's path below `tests`."""
    return {
        path.relative_to(ROOT / "tests"): ast.get_docstring(ast.parse(path.read_text())) or ""
        for path in (ROOT / "tests").rglob("test_*.py")
    }


def mirrored(test: Path) -> Path:
    """The module that a test file claims by its own name: `broker/test_acceptor.py` claims `broker/acceptor.py`."""
    return test.with_name(test.name.removeprefix("test_"))


def covers(test: Path, docstring: str, module: Path) -> bool:
    """Whether a test file claims a module, by its own name or in its docstring.

    A docstring names a module's path in one of three ways: whole, without the top package
    (`storage/log/appender.py`), or relative to the test's own folder.
    """
    names = [str(module)]
    if len(module.parts) > 2:
        names.append(str(module.relative_to(module.parts[0])))
    if module.is_relative_to(test.parent):
        names.append(str(module.relative_to(test.parent)))
    return mirrored(test) == module or any(re.search(rf"(?<![\w/]){re.escape(name)}\b", docstring) for name in names)


def test_every_test_file_claims_a_module() -> None:
    """By its own name, or else its docstring says what it tests."""
    files = set(modules().values())
    tests = {test: docstring for test, docstring in claims().items() if test.parts[0] in PACKAGES}
    assert [str(test) for test, docstring in tests.items() if mirrored(test) not in files and not docstring] == []


def test_every_module_is_claimed_by_a_test() -> None:
    claimed = claims()
    unclaimed = [
        str(module)
        for module in modules().values()
        if module.name != "__init__.py"
        and not any(covers(test, docstring, module) for test, docstring in claimed.items())
        and not any(str(module).startswith(folder) for folder in CLAIMED_AS_A_WHOLE)
    ]
    assert unclaimed == []


def test_the_rule_of_claims_can_fail() -> None:
    appender = Path("broker/storage/log/appender.py")
    assert covers(Path("broker/storage/log/test_appender.py"), "", appender)
    assert covers(Path("broker/test_races.py"), "Tests storage/log/appender.py and reader.py.", appender)
    assert covers(Path("broker/storage/log/test_log.py"), "Tests appender.py.", appender)
    assert not covers(Path("broker/test_races.py"), "Tests appender.py.", appender)
    assert not covers(Path("broker/test_races.py"), "Tests log/appender.py.", appender)


def undocumented(source: str) -> list[str]:
    """Public functions and methods of public classes without a docstring; an `@override` needs none."""
    found: list[str] = []

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                marks = {ast.unparse(mark).split(".")[-1] for mark in node.decorator_list}
                if ast.get_docstring(node) is None and not marks & {"override", "overload", "setter"}:
                    found.append(prefix + node.name)
            elif isinstance(node, ast.If):
                visit([*node.body, *node.orelse], prefix)

    visit(ast.parse(source).body, "")
    return found


def test_public_functions_have_docstrings() -> None:
    found = {str(path): names for path, source in sources() if (names := undocumented(source))}
    assert found == {}


def test_the_rule_of_docstrings_can_fail() -> None:
    assert undocumented("class A:\n def f(self): pass\n def _g(self): pass\ndef h(): 'Has one.'") == ["A.f"]


def compiled_modules() -> tuple[str, ...]:
    """The modules that mypyc compiles, from setup.py."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "COMPILED":
            return tuple(ast.literal_eval(node.value))
    raise AssertionError("setup.py has no COMPILED")


def not_to_be_compiled(source: str) -> list[str]:
    """Code that mypy accepts and that fails in mypyc or in its C compiler."""
    found = [f"attribute {name}: a keyword of C" for name in ("_thread",) if re.search(rf"self\.{name}\b", source)]
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            kinds: dict[str, set[str]] = {}
            for handler in ast.walk(function):
                if isinstance(handler, ast.ExceptHandler) and handler.name and handler.type:
                    kinds.setdefault(handler.name, set()).add(ast.unparse(handler.type))
            found += [f"{function.name}: {name} has two types" for name in kinds if len(kinds[name]) > 1]
    return found + _kept_generators(source)


#: Functions to which mypyc passes items one by one, or that take all items anyway.
TAKES_GENERATORS = {"any", "all", "sum", "next", "tuple", "frozenset", "max", "min", "sorted", "join"}


def _kept_generators(source: str) -> list[str]:
    """Return generator expressions that mypyc makes a list of, though they look lazy: a bound behind them is none."""
    taken: set[ast.expr] = set()
    found: list[ast.GeneratorExp] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            taken.update(node.args if name in TAKES_GENERATORS else ())
        elif isinstance(node, ast.Starred):
            taken.add(node.value)
        elif isinstance(node, ast.GeneratorExp):
            found.append(node)
    return [f"line {node.lineno}: not lazy when compiled" for node in found if node not in taken]


@pytest.mark.parametrize("module", compiled_modules())
def test_what_is_compiled_can_be(module: str) -> None:
    assert not_to_be_compiled((ROOT / module).read_text()) == []


def test_the_rule_for_compiled_modules_can_fail() -> None:
    assert not_to_be_compiled("self._thread = 1") != []
    assert not_to_be_compiled("def f():" + textwrap.indent(_two_handlers("OSError as e", "KeyError as e"), " ")) != []
    assert not_to_be_compiled("def f():" + textwrap.indent(_two_handlers("OSError as e", "KeyError as f"), " ")) == []
    assert not_to_be_compiled("islice((f(x) for x in y), 9)") != []
    assert not_to_be_compiled("any(f(x) for x in y), ','.join(x for x in y), [*(x for x in y)]") == []


def reads_the_cause(source: str) -> bool:
    """Whether code reads `__cause__`, which compiled code leaves empty."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "__cause__" and isinstance(node.ctx, ast.Load)
        for node in ast.walk(ast.parse(source))
    )


def test_a_cause_is_read_by_cause_of() -> None:
    found = {str(path) for path, source in sources() if reads_the_cause(source)}
    assert found == {"barnabas/common/processes/causes.py"}, "mypyc ignores the `from` of a raise: use cause_of"


def test_the_rule_of_causes_can_fail() -> None:
    assert reads_the_cause("match error.__cause__:\n case _: pass")
    assert not reads_the_cause("error.__cause__ = OSError()")


def _two_handlers(first: str, second: str) -> str:
    return f"\ntry:\n  pass\nexcept {first}:\n  pass\nexcept {second}:\n  pass\n"


def test_the_compatibility_page_has_the_tables_of_the_code() -> None:
    page = compatibility.PAGE.read_text()
    assert compatibility.updated(page) == page, "run `.venv/bin/python -m tools.docs.compatibility`"
