"""The one error of this package."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting that a person must change; the message is one line that names the key."""
