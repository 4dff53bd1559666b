"""Which lines of the code under test ran: a trace function of the interpreter.

A frame keeps its own trace function, so it stays traced when its greenlet loses its turn. A code object is left alone
once all its lines have run.

Threads: `Lines` belongs to the one thread of the simulation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Ran = dict[str, set[int]]  # file -> lines
Trace = Callable[[FrameType, str, Any], Any]


class Lines:
    """Notes the lines that run in files below some folders."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders
        self._missing: dict[CodeType, set[int] | None] = {}  # lines that have not run; None: not of interest
        self.ran: Ran = {}

    def start(self) -> None:
        """Note the lines of all functions that are called from now on, in this greenlet and its children."""
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        code = frame.f_code
        if code not in self._missing:
            is_ours = code.co_filename.startswith(self._folders)
            self._missing[code] = {line for _, _, line in code.co_lines() if line} if is_ours else None
        return self._stepped if self._missing[code] else None

    def _stepped(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        missing = self._missing[frame.f_code]
        if missing and frame.f_lineno in missing:
            missing.discard(frame.f_lineno)
            self.ran.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return self._stepped if missing else None


def lines_of(path: Path) -> set[int]:
    """Return the lines of the functions of a file. What is run by the import is left out."""
    code = compile(path.read_text(), str(path), "exec", dont_inherit=True)
    return {line for function in _functions(code) for _, _, line in function.co_lines() if line}


def _functions(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & 0x2:  # CO_NEWLOCALS: a function, not the body of a class
                yield each
            yield from _functions(each)
