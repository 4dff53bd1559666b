"""Content of /live.json pages for tests: complete by default, with the keys that a test sets replaced."""

from __future__ import annotations

from typing import Any

from barnabas.common.pages.live_constants import SCHEMA

REPLICA = {
    "is_leader": False,
    "is_in_sync": True,
    "is_alive": True,
    "log_start_offset": 0,
    "lag": 0,
    "last_fetch_ms": 100,
    "last_caught_up_ms": 100,
}


def replica(broker: int, end: int, leader_end: int = 0, **changes: Any) -> dict[str, Any]:
    return {**REPLICA, "broker": broker, "log_end_offset": end, "lag": max(0, leader_end - end), **changes}


def partition(topic: str = "orders", number: int = 3, **changes: Any) -> dict[str, Any]:
    """A partition with leader 1; the followers 2 and 0 have all records."""
    end = changes.get("log_end_offset", 1042)
    made = {
        "topic": topic,
        "partition": number,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "role": "leader",
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 7,
        "log_start_offset": 0,
        "log_end_offset": end,
        "high_watermark": end,
        "last_stable_offset": changes.get("high_watermark", end),
        "size_bytes": 123_456,
        "segments": 1,
        "isr": [0, 1, 2],
        "joining": [],
        "min_isr": 2,
        "lag_max_ms": 30_000,
        "is_isr_change_in_flight": False,
        "replica_ids": [1, 2, 0],
        "replicas": [replica(1, end, end, is_leader=True), replica(2, end, end), replica(0, end, end)],
        "fetch_lag": None,
    }
    return {**made, **changes}


def request(**changes: Any) -> dict[str, Any]:
    """A finished produce request with the given times."""
    times = changes.pop("times_ms", {})
    total = round(sum(times.values()), 3)
    made = {
        "api": "Produce",
        "version": 12,
        "correlation_id": 7,
        "client_id": "billing",
        "connection": "127.0.0.1:9092-127.0.0.1:50000-0-1",
        "listener": "PLAINTEXT",
        "follower_id": None,
        "size_bytes": 182,
        "age_ms": 4000.0,
        "place": "done",
        "times_ms": times,
        "total_ms": total,
        "own_ms": total,
    }
    return {**made, **changes}


def waiting(sentence: str, **changes: Any) -> dict[str, Any]:
    made = {
        "operation": "produce",
        "keys": [],
        "key_count": 1,
        "request": None,
        "client_id": None,
        "age_ms": 4100.0,
        "deadline_ms": 25_900.0,
        "reasons": [],
        "sentence": sentence,
    }
    return {**made, **changes}


def listed(*items: Any) -> dict[str, Any]:
    return {"total": len(items), "items": list(items)}


def purgatory(name: str, *items: Any) -> dict[str, Any]:
    return {"name": name, "watched": len(items), "delayed": len(items), "items": list(items)}


def processor(number: int = 0, **changes: Any) -> dict[str, Any]:
    made = {
        "id": number,
        "listener": "PLAINTEXT",
        "state": "sleeping",
        "doing": "sleeps in its selector",
        "idle": 0.9,
        "inbox": 0,
        "inbox_capacity": 20,
        "connections": 3,
        "muted": 0,
        "requests": 0,
        "response_queue": listed(),
        "sending": listed(),
    }
    return {**made, **changes}


def handler(number: int = 0, request: Any = None) -> dict[str, Any]:
    state = "idle" if request is None else "busy"
    return {"id": number, "state": state, "doing": "waits for a request", "since_ms": 1.0, "request": request}


def broker(number: int = 1, **changes: Any) -> dict[str, Any]:
    """The whole page of a broker."""
    made = {
        "schema": SCHEMA,
        "at_ms": 1_700_000_000_000,
        "node": {
            "id": number,
            "role": "broker",
            "state": "running",
            "epoch": 5,
            "cluster_id": "h3zYrOmsQJqmHD2y0yjFEg",
            "controller_id": 100,
            "version": "0.1.0",
            "up_ms": 60_000,
            "peers": [],
        },
        "acceptors": [],
        "processors": [processor()],
        "request_queue": {"capacity": 500, "total": 0, "items": [], "blocked_processors": 0},
        "handlers": {"total": 2, "sleeping": 2, "idle": 0.97, "items": [handler(0), handler(1)]},
        "purgatories": [purgatory("Produce"), purgatory("Fetch")],
        "elsewhere": listed(),
        "requests": {"finished": {}, "spent_ms": {}, "slow": [], "recent": [], "errors": []},
        "partitions": listed(),
        "fetchers": [],
        "groups": listed(),
        "transactions": listed(),
        "shares": listed(),
        "clients": listed(),
    }
    return {**made, **changes}


def group(**changes: Any) -> dict[str, Any]:
    made = {
        "group_id": "billing",
        "type": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "protocol": "range",
        "generation": 7,
        "leader": "m-1",
        "coordinator_partition": 12,
        "since_ms": 182_000,
        "members": listed(),
        "sentence": "is stable: 2 members in generation 7",
    }
    return {**made, **changes}


def member(member_id: str, **changes: Any) -> dict[str, Any]:
    made = {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "reader",
        "host": "10.0.0.7",
        "epoch": 7,
        "state": "member",
    }
    return {**made, **changes}
