"""The settings of a replica, and the voters of its configuration."""

from __future__ import annotations

from barnabas.common.ids import ZERO_UUID
from barnabas.controller.raft.client.settings import configured_voters, raft_config
from barnabas.controller.raft.voter_set import Listener
from tests.controller.rig import make_config

OWN = (Listener("CONTROLLER", "127.0.0.1", 9093),)


def test_timeouts_and_sizes_are_read() -> None:
    config = make_config(
        controller_quorum_election_timeout_ms="1",
        controller_quorum_election_backoff_max_ms="2",
        controller_quorum_fetch_timeout_ms="3",
        controller_quorum_request_timeout_ms="4",
        controller_quorum_retry_backoff_ms="5",
        controller_quorum_fetch_max_bytes="6",
        controller_quorum_fetch_snapshot_max_bytes="7",
    )
    found = raft_config(config, "c", OWN)
    assert (found.election_timeout_ms, found.election_backoff_max_ms, found.fetch_timeout_ms) == (1, 2, 3)
    assert (found.request_timeout_ms, found.retry_backoff_ms) == (4, 5)
    assert (found.fetch_max_bytes, found.snapshot_max_bytes) == (6, 7)
    assert found.listener_name == "CONTROLLER"


def test_a_replica_does_not_ask_itself() -> None:
    config = make_config(controller_quorum_bootstrap_servers="127.0.0.1:9093")
    assert raft_config(config, "c", OWN).bootstrap_servers == ()
    assert raft_config(config, "c", ()).bootstrap_servers == (("127.0.0.1", 9093),)


def test_static_voters_have_no_directories() -> None:
    config = make_config(controller_quorum_voters="100@h:1")
    (voter,) = configured_voters(config).voters
    assert voter.key == (100, ZERO_UUID)
    assert voter.listeners == (Listener("CONTROLLER", "h", 1),)


def test_without_static_voters_there_are_none_until_the_log_has_them() -> None:
    assert not list(configured_voters(make_config()).voters)
