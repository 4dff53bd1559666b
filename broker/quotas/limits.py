"""QuotaTable: which limit applies to a user and a client id, for one kind of quota.

Rules
1. The most specific limit applies: user and client id, user and any client id, user, any user and client id, any user
   and any client id, any user, client id, any client id.
2. Clients that share a limit share a rate if the limit names only one of the two: all client ids of a user, all users
   of a client id. `share_of` returns the two names that identify a rate, "" for one that does not matter.
3. Where limits of only one form exist, every client is measured in that form, whether it has a limit or not.

Threads: none; a table never changes.
Source: ClientQuotaManager.DefaultQuotaCallback (Kafka 4.3). Different: Kafka remembers until its restart that a form of
limits existed once; here the present limits decide alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from barnabas.broker.quotas.rates import UNLIMITED
from barnabas.security.values import CLIENT_ID, IP, USER, Limits, QuotaEntity

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

DEFAULT: Final = 0  # in place of a name: any name that has no limit of its own
Name: TypeAlias = "str | int | None"  # None: the entity has no such component

_OF_CLIENTS, _OF_USERS, _OF_PAIRS = 1, 2, 4


class Share(NamedTuple):
    """The clients whose use is added up (rule 2)."""

    user: str
    client_id: str


class Table(Protocol):
    """Knows the limits of one quota: a `QuotaTable`, or the operator's own class (callback.py)."""

    key: str

    def share_of(self, user: str, client_id: str) -> Share:
        """Return whose use a client's counts with."""

    def limit_of(self, share: Share) -> float:
        """Return the limit of a share; UNLIMITED if none applies."""


class QuotaTable:
    """The limits of one kind, by user and client id."""

    __slots__ = ("_forms", "_limits", "key")

    def __init__(self, quotas: Mapping[QuotaEntity, Limits], key: str) -> None:
        self.key = key  # the name of the quota
        self._limits: dict[tuple[Name, Name], float] = {}
        self._forms = 0  # of the limits that exist
        for entity, limits in quotas.items():
            names = entity.as_mapping()
            if key not in limits or IP in names:
                continue
            user, client_id = _name(names, USER), _name(names, CLIENT_ID)
            self._limits[user, client_id] = limits[key]
            if user is not None:
                self._forms |= _OF_USERS if client_id is None else _OF_PAIRS
            elif client_id is not None:
                self._forms |= _OF_CLIENTS

    def __len__(self) -> int:
        return len(self._limits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuotaTable) and self._limits == other._limits

    __hash__ = None  # type: ignore[assignment]

    def share_of(self, user: str, client_id: str) -> Share:
        """Return whose use a client's counts with (rules 2 and 3)."""
        if self._forms == _OF_CLIENTS:
            return Share("", client_id)
        if self._forms == _OF_USERS:
            return Share(user, "")
        if self._forms == _OF_PAIRS:
            return Share(user, client_id)
        limits = self._limits
        if (user, client_id) in limits or (user, DEFAULT) in limits:
            return Share(user, client_id)
        if (user, None) in limits:
            return Share(user, "")
        if (DEFAULT, client_id) in limits or (DEFAULT, DEFAULT) in limits:
            return Share(user, client_id)
        if (DEFAULT, None) in limits:
            return Share(user, "")
        return Share("", client_id)

    def limit_of(self, share: Share) -> float:
        """Return the limit of a share; UNLIMITED if none applies."""
        user, client_id = share
        names: tuple[tuple[Name, Name], ...]
        if user and client_id:
            names = ((user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT))
        elif user:
            names = ((user, None), (DEFAULT, None))
        elif client_id:
            names = ((None, client_id), (None, DEFAULT))
        else:
            names = ()
        for key in names:
            limit = self._limits.get(key)
            if limit is not None:
                return limit
        return UNLIMITED


def _name(names: Mapping[str, str | None], kind: str) -> Name:
    if kind not in names:
        return None
    name = names[kind]
    return DEFAULT if name is None else name


def address_limits(quotas: Mapping[QuotaEntity, Limits]) -> dict[str | None, float]:
    """Return the connections a second by IP address or host name; None is the default of all others."""
    found: dict[str | None, float] = {}
    for entity, limits in quotas.items():
        names = entity.as_mapping()
        if IP in names and CONNECTION_CREATION_RATE in limits:
            found[names[IP]] = limits[CONNECTION_CREATION_RATE]
    return found
