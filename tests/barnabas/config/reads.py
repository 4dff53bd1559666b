"""Finds where the sources read config keys, by their syntax trees instead of a text search.

A read of a key is one of these, outside `barnabas/config`:
- an attribute of an object whose name ends in "config": `config.num_io_threads`, `self._config.num_io_threads`,
  `topic_config(...).retention_ms`; an f-string in `getattr(config, f"compression_{...}_level")` reads all that match;
- its name, as a text or a constant, where a value is read by name: `config.value("log.dirs")`, `values["log.dirs"]`,
  `dynamic.broker_value("leader.replication.throttled.rate")`.

Inside `barnabas/config` only the modules that derive other values count (MAKERS): checks and warnings also read keys
that have no effect.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("barnabas", "broker", "controller", "metrics")
CONFIG = ROOT / "barnabas" / "config"
#: The modules of `barnabas/config` that derive values which other packages read.
MAKERS = ("config.py",)
#: Calls that take the name of a key, and mappings by the names of keys.
READERS = ("value", "broker_value", "own")
MAPPINGS = ("values",)


def reads(source: str, imported: Mapping[str, ast.expr] | None = None) -> Iterator[str]:
    """Yield the attributes (`a_b`), patterns of attributes (`a_.*_b`) and names (`a.b`) of keys that are read here.

    `imported`: the constants of other modules.
    """
    tree = ast.parse(source)
    constants = {**(imported or {}), **_constants(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _is_config(node.value):
            yield node.attr
        elif isinstance(node, ast.Call):
            yield from _of_call(node, constants)
        elif isinstance(node, ast.Subscript) and _last_name(node.value) in MAPPINGS and isinstance(node.ctx, ast.Load):
            yield from _texts([node.slice], constants)


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values of a module's constants by name."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
    return found


def _of_call(node: ast.Call, constants: Mapping[str, ast.expr]) -> Iterator[str]:
    called = _last_name(node.func)
    if called in READERS:
        yield from _texts(node.args[:1], constants)
    elif called == "getattr" and _is_config(node.args[0]):
        yield from _texts(node.args[1:2], constants)


def _texts(nodes: Iterable[ast.expr], constants: Mapping[str, ast.expr]) -> Iterator[str]:
    for given in nodes:
        node = constants.get(given.id, given) if isinstance(given, ast.Name) else given
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".*" for p in node.values)


def _is_config(node: ast.expr) -> bool:
    """Whether the name of this object, or of the function that makes it, ends in "config"."""
    return _last_name(node.func if isinstance(node, ast.Call) else node).lower().endswith("config")


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def files() -> Iterator[Path]:
    """Yield the sources that count."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if CONFIG not in path.parents or path.name in MAKERS:
                yield path


def all_reads() -> frozenset[str]:
    """Return the keys and attributes that all sources read."""
    sources = [path.read_text() for path in files()]
    imported = {name: value for source in sources for name, value in _constants(ast.parse(source)).items()}
    return frozenset(found for source in sources for found in reads(source, imported))
