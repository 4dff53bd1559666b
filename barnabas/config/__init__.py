"""Settings: THE table of keys (`keys.py`), and `Config`, which holds the values of one process."""

from __future__ import annotations

from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.config.group import GroupConfig
from barnabas.config.listeners import Listener
from barnabas.config.topic import TopicConfig, topic_config

__all__ = ["Config", "ConfigError", "GroupConfig", "Listener", "TopicConfig", "topic_config"]
