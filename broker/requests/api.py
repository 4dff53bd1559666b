"""A row of an API table: all that other components need to know of an API key.

The TABLE of a process (`broker/apis/table.py`, `controller/apis/table.py`) maps keys to rows. The dispatch of requests,
ApiVersions, the metrics and the documentation are derived from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.schema import Message

Handle: TypeAlias = "Callable[[Any, Request], Answer]"
NodesOnly: TypeAlias = "Callable[[Request], bool]"
Admits: TypeAlias = "Callable[[Any, memoryview], bool]"
DecoderOf: TypeAlias = "Callable[[int], Callable[[Any, int], tuple[Any, int]]]"
ErrorResponse: TypeAlias = "Callable[[Message, int, int, str | None], Message]"


@dataclass(frozen=True, slots=True)
class Api:
    """One API key as this process serves it.

    - `versions` is inclusive.
    - `advertised` False: accepted, but not listed by ApiVersions (the controller's pushes).
    - `error_response(request message, version, code, message)` builds the response to an error of the whole request;
      None derives it from the response's schema.
    - `nodes_only(request)` tells whether only brokers and controllers may send this request. On a listener for clients
      it is answered with CLUSTER_AUTHORIZATION_FAILED. None: clients may send every request of this API.
    - `is_forwarded`: a controller accepts it from a broker, in an Envelope on behalf of a client (KIP-590).
    - `admits(services, frame)` checks a large request before it is decoded; false refuses it. None: only the size limit
      of its kind applies.
    - `unstable_since`: the first version that Apache Kafka marks as unstable, if there is one. Such versions need
      `unstable.api.versions.enable`, as in Kafka.
    - `decoder(version)` returns the decoder of requests of a version; None: that of the API's messages.
    """

    key: int
    name: str
    versions: tuple[int, int]
    handle: Handle
    advertised: bool = True
    error_response: ErrorResponse | None = None
    nodes_only: NodesOnly | None = None
    admits: Admits | None = None
    is_forwarded: bool = False
    unstable_since: int | None = None
    decoder: DecoderOf | None = None

    def supports(self, version: int) -> bool:
        """Return whether a request of this version may be decoded and handled."""
        return self.versions[0] <= version <= self.versions[1]


def nodes_only(_request: Request) -> bool:
    """Return true: the `nodes_only` of an API that no client may use."""
    return True


Table: TypeAlias = Mapping[int, Api]


def make_table(*rows: Api) -> dict[int, Api]:
    """Build a table in order of keys; asserts that no key has two rows."""
    table: dict[int, Api] = {}
    for row in sorted(rows, key=lambda row: row.key):
        assert row.key not in table, f"two rows for API key {row.key}"
        assert row.versions[0] <= row.versions[1], f"{row.name} has an empty version range"
        table[row.key] = row
    return table


def stable_versions(table: Table) -> Table:
    """Return a table without the versions that Apache Kafka marks as unstable: they are neither listed nor served."""
    return {key: _stable(api) for key, api in table.items() if api.unstable_since != api.versions[0]}


def _stable(api: Api) -> Api:
    if api.unstable_since is None:
        return api
    return replace(api, versions=(api.versions[0], api.unstable_since - 1))
