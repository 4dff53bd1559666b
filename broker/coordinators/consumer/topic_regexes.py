"""Resolves the regular expressions of consumer groups to topics.

Source: Kafka's TopicRegexResolver (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from barnabas.broker.coordinators.consumer.values import ResolvedRegex
from barnabas.common.regex.pattern import PatternError, matching_names

log = logging.getLogger("barnabas.group")


def resolve(regexes: Iterable[str], topics: Sequence[str], version: int, now_ms: int) -> dict[str, ResolvedRegex]:
    """Match whole topic names; `version` is that of the metadata with these topics, `now_ms` wall time."""
    resolved = {}
    for text in regexes:
        try:
            names = frozenset(matching_names(text, topics))
        except PatternError as error:  # matching takes too long, or the broker that accepted it is more lenient
            log.error("Regular expression %r is ignored: %s", text, error)
            names = frozenset()
        resolved[text] = ResolvedRegex(names, version, now_ms)
    return resolved
