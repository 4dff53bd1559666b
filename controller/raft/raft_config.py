"""The settings of a replica of the quorum (`controller.quorum.*`)."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.controller.raft.voter_set import Listener

FETCH_BYTES_MAX: Final = 8 << 20
#: The lowest and highest kraft.version that a replica supports.
KRAFT_VERSIONS: Final = (0, 1)


class RaftConfig(NamedTuple):
    """Timeouts in milliseconds, sizes in bytes; the defaults are Kafka's."""

    cluster_id: str
    #: Of this replica; other replicas use the one called `listener_name`.
    listeners: tuple[Listener, ...]
    listener_name: str = "CONTROLLER"
    #: `controller.quorum.bootstrap.servers`: where a replica without a leader asks.
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = FETCH_BYTES_MAX
    snapshot_max_bytes: int = FETCH_BYTES_MAX
    #: The lowest and highest kraft.version that this replica supports.
    kraft_versions: tuple[int, int] = KRAFT_VERSIONS
    #: `controller.quorum.auto.join.enable`: an observer asks to become a voter.
    joins: bool = False
