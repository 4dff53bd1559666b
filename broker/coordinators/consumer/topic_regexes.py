"""Resolves the regular expressions of consumer groups to topics.

Source: Kafka's TopicRegexResolver (4.3).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.broker.coordinators.consumer.values import ResolvedRegex
from barnabas.common.regex.pattern import PatternError, matching_names

log = logging.getLogger("barnabas.group")

#: CPU time for the expressions of a group. One alone may take two seconds, and other groups wait meanwhile.
TIME_MAX_NS: Final = 10_000_000_000


def resolve(
    regexes: Iterable[str], topics: Sequence[str], version: int, now_ms: int, time_max_ns: int = TIME_MAX_NS
) -> dict[str, ResolvedRegex]:
    """Match whole topic names; `version` is that of the metadata with these topics, `now_ms` wall time.

    An expression for which no time is left matches nothing.
    """
    end_ns = time.thread_time_ns() + time_max_ns
    resolved = {}
    for text in regexes:
        names: frozenset[str] = frozenset()
        try:
            if time.thread_time_ns() < end_ns:
                names = frozenset(matching_names(text, topics))
            else:
                log.error("Regular expression %r is ignored: those of the group before it took too long", text)
        except PatternError as error:  # matching takes too long, or the broker that accepted it is more lenient
            log.error("Regular expression %r is ignored: %s", text, error)
        resolved[text] = ResolvedRegex(names, version, now_ms)
    return resolved
