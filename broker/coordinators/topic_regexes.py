"""Which topics the regular expressions of consumer groups stand for.

Source: Kafka's TopicRegexResolver (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from barnabas.broker.coordinators.consumer_group_types import ResolvedRegex
from barnabas.broker.coordinators.re2 import RegexError, compile_regex

log = logging.getLogger("barnabas.group")


def resolve(regexes: Iterable[str], topics: Sequence[str], version: int, now_ms: int) -> dict[str, ResolvedRegex]:
    """Match whole names of topics; `version` is of the metadata that has these topics, `now_ms` wall."""
    resolved = {}
    for text in regexes:
        try:
            names = frozenset(filter(compile_regex(text).matches, topics))
        except RegexError as error:  # it takes too many steps, or was checked by a broker that is more lenient
            log.error("Regular expression %r is ignored: %s", text, error)
            names = frozenset()
        resolved[text] = ResolvedRegex(names, version, now_ms)
    return resolved
