"""Settings: THE table of keys (`table/keys.py`), and `Config`, the values of one process."""

from __future__ import annotations

from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import Listener
from barnabas.config.resources.group import GroupConfig
from barnabas.config.resources.topic import TopicConfig

__all__ = ["Config", "ConfigError", "GroupConfig", "Listener", "TopicConfig"]
