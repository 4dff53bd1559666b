"""Servers, local clusters and the command line are for Linux; elsewhere they say so in one line.

What reads and writes the protocol (`barnabas.protocol`, `barnabas.client`) works anywhere. docs/platforms.md has what
stands between the rest and macOS.
"""

from __future__ import annotations

import sys


def refusal(platform: str = sys.platform) -> str | None:
    """Return why nothing starts on this platform (as sys.platform names it), in one line; None on Linux."""
    if platform == "linux":
        return None
    return f"Barnabas runs on Linux only, and this is {platform}: use a container or a virtual machine"


def require() -> None:
    """Raise ImportError elsewhere than on Linux: for the heads of packages that cannot work there."""
    told = refusal()
    if told is not None:
        raise ImportError(told)
