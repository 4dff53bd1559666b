"""Configs that tests build by the thousand, each parsed once: that takes longer than most of what they do with it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cache

from barnabas.config.config import Config


def parsed(properties: Mapping[str, str], role: str) -> Config:
    """A config of its own: what replaces its values, or keeps topics' configs in it, changes no other."""
    config = copy(_parsed(tuple(properties.items()), role))
    config.__dict__["shared_topic_configs"] = {}
    return config


@cache
def _parsed(properties: tuple[tuple[str, str], ...], role: str) -> Config:
    return Config.from_properties(dict(properties), role)
