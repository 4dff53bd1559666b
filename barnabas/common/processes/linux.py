"""Servers, local clusters and the command line need Linux; elsewhere they fail with one line.

`barnabas.protocol` and `barnabas.client` work anywhere. docs/platforms.md lists what the rest would need on macOS.
"""

from __future__ import annotations

import sys


def refusal(platform: str = sys.platform) -> str | None:
    """Return one line that says why nothing starts on this platform (a value of sys.platform); None on Linux."""
    if platform == "linux":
        return None
    return f"Barnabas runs on Linux only, and this is {platform}: use a container or a virtual machine"


def require() -> None:
    """Raise ImportError unless on Linux; packages that need Linux call it when they are imported."""
    problem = refusal()
    if problem is not None:
        raise ImportError(problem)
