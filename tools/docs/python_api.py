"""The Python reference: what other projects may import, read from the sources.

The sources are parsed, not imported: a page shows what is written, defaults and annotations included, also where the
module that would be imported is compiled.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from tools.docs.markdown import cell, code_cell, docstring, table
from tools.docs.stage import ROOT


class Public(NamedTuple):
    """A section of the page: a package or module, and its public names; they are defined anywhere below it."""

    module: str
    names: tuple[str, ...]


#: Everything here is kept compatible within a minor release; what is not here is internal.
PUBLIC: Final = (
    Public(
        "barnabas.testing",
        ("cluster", "Cluster", "StartError", "Record", "Expected", "barnabas_cluster", "barnabas_topic"),
    ),
    Public(
        "barnabas.faults",
        (
            *("Fault", "FaultError", "inject_error", "disconnect_on", "delay_on", "blackhole_client"),
            *("Faults", "FaultHandle", "FaultTimeoutError", "FaultsUnavailableError", "NodeFaults"),
            *("Recorder", "RecordedRequest", "Scenario"),
        ),
    ),
    Public("barnabas.clock", ("ClusterClock", "ClockError")),
    Public("barnabas.cluster", ("LocalCluster", "ClusterError")),
    Public("barnabas.client", ("NodeConnection", "NodeConnectionError")),
    Public(
        "barnabas.protocol",
        ("ErrorCode", "ApiError", "MalformedMessageError", "UnsupportedVersionError", "Message"),
    ),
)

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def python_page() -> str:
    """Return the page of the modules that other projects may import."""
    parts = [
        "# Python",
        "",
        "These names are public. Everything else is internal and may change in any release. The pytest fixtures need "
        "no import: see [Testing](../testing.md).",
        "",
    ]
    for public in PUBLIC:
        parts += [f"## {public.module}", ""]
        definitions = definitions_of(public.module)
        for name in public.names:
            parts += list(_definition_parts(definitions[name]))
    return "\n".join(parts)


def definitions_of(module: str) -> dict[str, _Definition]:
    """Return the functions and classes at the top of a module, or of the modules of a package, by name."""
    path = ROOT.joinpath(*module.split("."))
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return {
        node.name: node for file in files for node in ast.parse(file.read_text()).body if isinstance(node, _Definition)
    }


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool = False) -> str:
    """Return a function's name, parameters and return type as they are written; `self` and `cls` are left out."""
    arguments = node.args
    if is_method and arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments = ast.arguments(
            **{**{field: getattr(arguments, field) for field in arguments._fields}, "args": arguments.args[1:]}
        )
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(arguments)}){returns}"


def _definition_parts(node: _Definition) -> Iterator[str]:
    yield from (f"### {node.name}", "")
    if isinstance(node, ast.ClassDef):
        yield from _class_parts(node)
    else:
        yield from (f"```python\n{signature(node)}\n```", "", docstring(ast.get_docstring(node)))


def _class_parts(node: ast.ClassDef) -> Iterator[str]:
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    yield from (f"```python\nclass {node.name}{bases}\n```", "", docstring(ast.get_docstring(node)))
    fields = [
        (code_cell(statement.target.id), code_cell(ast.unparse(statement.annotation)), _default(statement.value))
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        if not statement.target.id.startswith("_")
    ]
    if fields:
        yield table(("field", "type", "default"), fields)
    methods = [
        (code_cell(_shown(method)), cell(ast.get_docstring(method) or ""))
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and (not method.name.startswith("_") or method.name == "__init__")
        if not any(ast.unparse(decorator).endswith(".setter") for decorator in method.decorator_list)
    ]
    if methods:
        yield table(("method", "meaning"), methods)


def _default(value: ast.expr | None) -> str:
    return "" if value is None else code_cell(ast.unparse(value))


def _shown(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A property as an attribute, a constructor by its parameters, any other method by its signature."""
    decorators = {ast.unparse(decorator) for decorator in method.decorator_list}
    if decorators & {"property", "cached_property", "functools.cached_property"}:
        returns = f": {ast.unparse(method.returns)}" if method.returns else ""
        return method.name + returns
    return signature(method, is_method=True)
