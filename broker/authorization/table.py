"""The rights that each API needs, by process: what dispatch, tests and documentation are made from.

`NO_RIGHTS` names the APIs that need none, so that an API without a row is seen as a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.broker.authorization import broker_rows, controller_rows
from barnabas.broker.authorization.row import Row
from barnabas.protocol.api_keys import ApiKey

Rights = Mapping[int, tuple[Row, ...]]


def by_key(rows: list[Row]) -> Rights:
    """Return the rows of each API, in order."""
    keys = dict.fromkeys(row.key for row in rows)
    return {key: tuple(row for row in rows if row.key == key) for key in keys}


BROKER_RIGHTS: Final = by_key(broker_rows.ROWS)
CONTROLLER_RIGHTS: Final = by_key(controller_rows.ROWS)

#: APIs that a process answers without asking for a right, and why.
NO_RIGHTS: Final[Mapping[int, str]] = {
    ApiKey.SASL_HANDSHAKE: "it belongs to authentication",
    ApiKey.SASL_AUTHENTICATE: "it belongs to authentication",
    ApiKey.API_VERSIONS: "clients need it before they know anything",
    ApiKey.RENEW_DELEGATION_TOKEN: "only a token's owner and renewers may",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "only a token's owner and renewers may",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "it returns what the client is to push, and nothing of the cluster",
    ApiKey.PUSH_TELEMETRY: "what a subscription asks a client for, it may push",
}

#: APIs that a broker forwards: the controller asks.
FORWARDED: Final = frozenset(CONTROLLER_RIGHTS) - frozenset(BROKER_RIGHTS)
