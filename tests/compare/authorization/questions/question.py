"""A question: a request that users with different rights send, in some versions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.protocol.messages import request_class
from tests.compare import golden
from tests.compare.authorization.users import PUBLIC
from tests.compare.authorization.world import World

TOPICS: Final = ["open-t", "shut-t", PUBLIC, "open-n", "shut-n"]  # the last two are missing
MISSING: Final = ["open-n", "shut-n"]
OLDEST: Final = -1
NEWEST: Final = -2  # of those that both brokers have
Fields = dict[str, Any]

_advertised = functools.cache(golden.load_advertised)


class Question(NamedTuple):
    """See the module."""

    name: str
    key: int
    fields: Callable[[World, int], Fields]
    given_versions: tuple[int, ...] = (OLDEST, NEWEST)
    deletes: bool = False  # whether it deletes topics, which are created again
    asks_controller: bool = False

    def versions(self) -> list[int]:
        """Return the versions in which the question is asked."""
        request = request_class(self.key)
        of_broker = _advertised().get(str(self.key))  # a broker does not list what only controllers answer
        newest = request.MAX_VERSION
        if of_broker is not None:
            newest = min(newest, int(of_broker.rpartition("-")[2]))
        numbers = {OLDEST: request.MIN_VERSION, NEWEST: newest}
        return sorted({numbers.get(version, version) for version in self.given_versions})
