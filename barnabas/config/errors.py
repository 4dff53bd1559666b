"""The one error of this package."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting that must be changed; the message is one line that names the key."""
