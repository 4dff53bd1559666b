"""Markdown from values: tables, escaped text, docstrings. Pure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`+[^`]+`+)")
_SPECIAL = re.compile(r"([\\*_<>\[\]#|$~{}])")


def escape(text: str) -> str:
    """Escape text so that it is shown literally. Parts in backticks stay code."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)


def cell(text: str) -> str:
    """Return text for a cell of a table: one line, without a bare `|`."""
    return " ".join(escape(text).split()).replace("\\|", "|").replace("|", "\\|")


def code(text: str) -> str:
    """Return text as code within a line; "" stays empty."""
    if not text:
        return ""
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{text}{ticks}"


def code_cell(text: str) -> str:
    """Return text as code for a cell of a table."""
    return code(" ".join(text.split()).replace("|", "\\|"))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are Markdown already."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def docstring(text: str | None) -> str:
    """Return a docstring as Markdown.

    Paragraphs stay paragraphs. A block with a deeper indent, or with a line drawn in it, is shown as it stands.
    """
    blocks = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        lines = block.splitlines()
        if lines and _is_verbatim(lines):
            blocks.append("```text\n" + "\n".join(lines) + "\n```")
        elif lines:
            blocks.append(_prose(lines))
    return "\n\n".join(blocks) + "\n"


def _is_verbatim(lines: list[str]) -> bool:
    drawn = any(re.search(r"-{3,}|--+>|<--+|\s{3,}\S|^\s*\|", line.lstrip()) for line in lines)
    return drawn or all(line.startswith("    ") for line in lines)


def _prose(lines: list[str]) -> str:
    """Join the lines, except list items, which start with a number or a dash."""
    items: list[str] = []
    for line in lines:
        is_item = re.match(r"\s*(\d+\.|-) ", line) is not None
        if items and not is_item:
            items[-1] += " " + escape(line.strip())
        else:
            mark, _, rest = line.strip().partition(" ") if is_item else ("", "", line.strip())
            items.append(f"{mark} {escape(rest)}".strip())
    return "\n".join(items)
