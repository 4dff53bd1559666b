"""Secrets that other users of the machine can read: in files, and in the list of processes.

A file is exposed if everybody may read it and enter each directory above it. The group does not count: operators and
orchestrators give secrets to a process by its group.

Threads: any; reads the modes of files.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.config.listeners import base_name
from barnabas.config.secrets.sensitive import is_password
from barnabas.config.secrets.variables import has_variable

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.config.secrets.variables import Resolved

#: Keys that name a file with a private key.
KEY_FILES: Final = frozenset({"ssl.keystore.location", "barnabas.pages.ssl.keystore.location"})


def is_exposed(path: Path) -> bool:
    """Whether every user can read this file; false if it does not exist."""
    try:
        real = path.resolve()
        modes = [parent.stat().st_mode for parent in real.parents]
        return bool(real.stat().st_mode & stat.S_IROTH) and all(mode & stat.S_IXOTH for mode in modes)
    except OSError:
        return False


def warnings(file: Path, written: Mapping[str, str], overrides: Mapping[str, str], resolved: Resolved) -> Iterator[str]:
    """Yield a line for each place that shows secrets to other users.

    `written` is what the file holds, `overrides` what the command line does.
    """
    from pathlib import Path  # Why here: it brings more modules than the table of keys has

    secrets = _passwords(written)
    if secrets and is_exposed(file):
        yield f"every user can read {file}, which holds {secrets}: change its mode to 600"
    for read, keys in sorted(resolved.files.items()):
        if is_exposed(read):
            yield f"every user can read {read}, which holds {', '.join(keys)}: change its mode to 600"
    for key, text in sorted(resolved.properties.items()):
        if base_name(key) in KEY_FILES and text.strip() and is_exposed(Path(text.strip())):
            yield f"every user can read {text.strip()}, the private key of {key}: change its mode to 600"
    secrets = _passwords(overrides)
    if secrets:
        yield f"every user sees --override {secrets} in the list of processes: write it to a file instead"


def _passwords(properties: Mapping[str, str]) -> str:
    """Return the keys with a secret as plain text, as a list."""
    return ", ".join(
        sorted(
            name for name, text in properties.items() if text.strip() and is_password(name) and not has_variable(text)
        )
    )
