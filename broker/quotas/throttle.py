"""Throttle: how long a client must wait after a request, and why."""

from __future__ import annotations

from typing import Final, NamedTuple


class Throttle(NamedTuple):
    """A wait that a quota imposes. `ms` 0: the request was counted, and the client need not wait."""

    ms: int
    quota: str = ""  # the name of the quota, such as producer_byte_rate
    user: str = ""  # of the share that used too much; "" if the user does not matter
    client_id: str = ""  # likewise
    limit: float = 0.0
    observed: float = 0.0  # the rate that is above the limit; of a token bucket, the tokens left


UNTHROTTLED: Final = Throttle(0)
#: The same for a request that no quota of thread time is for.
EXEMPT: Final = Throttle(0, "exempt")
