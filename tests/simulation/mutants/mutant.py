"""A mistake on purpose: one part of a module of the code under test, and what it becomes.

A part is there exactly once. A mutant that no longer fits the source fails, so that none silently means nothing.

Threads: `apply` is called before the code under test is imported. Compiled modules cannot be changed like this.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple


class Mutant(NamedTuple):
    """A mistake."""

    module: str  # below `barnabas`
    part: str
    becomes: str
    breaks: str  # the promise, in words
    mended: str = ""  # the commit that mended this very fault, if the code once had it
    life: str = ""  # parts of a story (load/story.py) that show it sooner than the story of its area alone

    @property
    def module_name(self) -> str:
        """The name under which the module is imported."""
        return f"barnabas.{self.module}"


class MutantError(Exception):
    """A mutant does not fit the source."""


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source with the mistake; raises MutantError unless its part is there once."""
    if source.count(mutant.part) != 1:
        raise MutantError(f"{mutant.module} has {source.count(mutant.part)} times: {mutant.part}")
    return source.replace(mutant.part, mutant.becomes)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module of a mutant, and loads it with the mistake."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See MetaPathFinder."""
        if fullname != self._mutant.module_name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            raise MutantError(f"{fullname} is not imported from its source")
        spec.loader = _Loader(fullname, spec.loader.path, self._mutant)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the source with the mistake; keeps no bytecode."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> object:
        """See SourceFileLoader."""
        source = mutated(self.get_data(self.path).decode(), self._mutant)
        return compile(source, self.path, "exec", dont_inherit=True)


def apply(mutant: Mutant) -> None:
    """Make a mistake in all that is imported from now on."""
    sys.meta_path.insert(0, _Finder(mutant))
