"""Request threads share one core unless batches are large, and do not interrupt each other while they are small."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from barnabas.broker.network import affinity
from barnabas.broker.network.affinity import (
    BUSY_BYTES,
    IDLE_INTERVAL_MS,
    IDLE_REVIEWS,
    READING_BYTES,
    REVIEW_INTERVAL_MS,
    Moved,
    Placement,
    RequestAffinity,
    next_placement,
)
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue

CPUS = {4, 5, 7}
PATIENT, PROMPT, APART, READING = Placement


KIB = 1 << 10


@pytest.mark.parametrize(
    ("placement", "mean_bytes", "size_bytes", "expected"),
    [
        (APART, 100, BUSY_BYTES, PATIENT),
        (PATIENT, 100, BUSY_BYTES, PATIENT),
        (PATIENT, 100 * KIB, BUSY_BYTES - 1, PATIENT),  # little to copy
        (APART, 100 * KIB, BUSY_BYTES - 1, PATIENT),
        (PATIENT, 16 * KIB, 100 * BUSY_BYTES, PROMPT),  # a producer's batch.size
        (APART, 16 * KIB, 100 * BUSY_BYTES, PROMPT),
        (PATIENT, 4 * KIB, BUSY_BYTES, PATIENT),  # between the two bounds the placement stays
        (PROMPT, 4 * KIB, BUSY_BYTES, PROMPT),
        (PROMPT, 32 * KIB, BUSY_BYTES, PROMPT),
        (APART, 32 * KIB, BUSY_BYTES, APART),
        (PATIENT, 64 * KIB, BUSY_BYTES, APART),
    ],
)
def test_decision(placement: Placement, mean_bytes: int, size_bytes: int, expected: Placement) -> None:
    batches = size_bytes // mean_bytes
    assert next_placement(placement, Moved(batches, size_bytes, 0, 0)) is expected
    assert next_placement(placement, Moved(batches, BUSY_BYTES, size_bytes - BUSY_BYTES, 0)) is expected
    assert next_placement(placement, Moved(batches, 0, 0, size_bytes)) is expected


@pytest.mark.parametrize(
    ("placement", "mean_bytes", "written_bytes", "read_bytes", "expected"),
    [
        (APART, 1 << 20, 0, READING_BYTES, READING),
        (PATIENT, 1 << 20, BUSY_BYTES - 1, 100 * READING_BYTES, READING),
        (READING, 1 << 20, BUSY_BYTES, READING_BYTES, APART),
        (READING, 32 * KIB, 0, READING_BYTES, READING),
        (READING, 16 * KIB, 0, READING_BYTES, PROMPT),
        (READING, 1 << 20, 0, READING_BYTES - 1, APART),
        (READING, 1 << 20, 0, BUSY_BYTES - 1, PATIENT),
    ],
)
def test_decision_while_much_is_read(
    placement: Placement, mean_bytes: int, written_bytes: int, read_bytes: int, expected: Placement
) -> None:
    batches = (written_bytes + read_bytes) // mean_bytes
    assert next_placement(placement, Moved(batches, written_bytes, read_bytes, 0)) is expected


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """How each thread is scheduled, by its native id."""
    policies: dict[int, int] = {}

    def set_policy(native_id: int, policy: int, parameter: os.sched_param) -> None:
        assert parameter.sched_priority == 0
        policies[native_id] = policy

    monkeypatch.setattr(os, "sched_setscheduler", set_policy)
    return policies


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch, policies: dict[int, int]) -> dict[int, set[int]]:
    """Each thread's last affinity, by its native id."""
    where: dict[int, set[int]] = {}
    monkeypatch.setattr(affinity, "HAS_GLOBAL_LOCK", True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: CPUS)
    monkeypatch.setattr(os, "sched_setaffinity", where.__setitem__)
    return where


@contextmanager
def running(name: str) -> Iterator[threading.Thread]:
    """A thread of this name."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name=name)
    thread.start()
    yield thread
    end.set()
    thread.join()


@pytest.fixture
def handler() -> Iterator[threading.Thread]:
    """A thread with a request handler's name."""
    with running("data-plane-kafka-request-handler-3") as thread:
        yield thread


@pytest.mark.parametrize(
    ("name", "cpus", "policy"),
    [
        ("data-plane-kafka-network-thread-1-ListenerName(PLAINTEXT)-PLAINTEXT-0", {5}, os.SCHED_BATCH),
        ("data-plane-kafka-request-handler-0", {5}, os.SCHED_BATCH),
        ("ReplicaFetcherThread-0-2", CPUS, os.SCHED_BATCH),
        ("log-cleaner", CPUS, os.SCHED_OTHER),
    ],
)
def test_which_threads_are_confined_and_patient(
    placed: dict[int, set[int]], policies: dict[int, int], name: str, cpus: set[int], policy: int
) -> None:
    def review() -> None:
        RequestAffinity(Registry(), 4, "auto").review()
        found.append((placed[threading.get_native_id()], policies[threading.get_native_id()]))

    found: list[tuple[set[int], int]] = []
    thread = threading.Thread(target=review, name=name)
    thread.start()
    thread.join()
    assert found == [(cpus, policy)]


def produce(registry: Registry, batches: int, size_bytes: int) -> None:
    registry.meter(catalogue.TOTAL_PRODUCE_REQUESTS_PER_SEC).mark(batches)
    registry.meter(catalogue.BYTES_IN_PER_SEC).mark(size_bytes)


def test_threads_move_to_one_core_and_apart(
    placed: dict[int, set[int]], policies: dict[int, int], handler: threading.Thread
) -> None:
    registry = Registry()
    request_affinity = RequestAffinity(registry, 4, "auto")
    request_affinity.review()
    assert handler.native_id is not None
    assert placed[handler.native_id] == {5}, "broker 4 of 3 cores takes the second"
    assert placed[threading.get_native_id()] == CPUS, "other threads are never confined"
    assert policies[handler.native_id] == os.SCHED_BATCH, "a woken thread waits until its waker sleeps"
    assert policies[threading.get_native_id()] == os.SCHED_OTHER
    produce(registry, BUSY_BYTES >> 14, BUSY_BYTES)
    request_affinity.review()
    assert placed[handler.native_id] == {5}
    assert policies[handler.native_id] == os.SCHED_OTHER, "it does not wait for others' time slices"
    produce(registry, 10, BUSY_BYTES)
    request_affinity.review()
    assert placed[handler.native_id] == CPUS
    assert policies[handler.native_id] == os.SCHED_OTHER
    placed.clear()
    produce(registry, 10, BUSY_BYTES)
    request_affinity.review()
    assert placed == {}, "they are not confined"
    registry.meter(catalogue.BYTES_OUT_PER_SEC).mark(READING_BYTES)
    request_affinity.review()
    assert placed[handler.native_id] == CPUS
    assert policies[handler.native_id] == os.SCHED_BATCH, "readers take all that is there"
    with running("data-plane-kafka-request-handler-4") as new:
        registry.meter(catalogue.BYTES_OUT_PER_SEC).mark(READING_BYTES)
        request_affinity.review()
        assert new.native_id is not None
        assert policies[new.native_id] == os.SCHED_BATCH
    request_affinity.review()
    assert placed[handler.native_id] == {5}


def test_only_threads_that_are_new_or_to_be_moved_cost_a_system_call(
    placed: dict[int, set[int]], policies: dict[int, int], handler: threading.Thread
) -> None:
    registry = Registry()
    request_affinity = RequestAffinity(registry, 4, "auto")
    request_affinity.review()
    placed.clear()
    policies.clear()
    produce(registry, 1, 100)
    request_affinity.review()
    assert (placed, policies) == ({}, {})
    with running("data-plane-kafka-request-handler-4") as new:
        request_affinity.review()
        assert placed == {}, "nothing moves"
        produce(registry, 1, 100)
        request_affinity.review()
    assert placed == {new.native_id: {5}}
    assert policies == {new.native_id: os.SCHED_BATCH}


def test_full_batches_are_seen_although_followers_fetch_often(
    placed: dict[int, set[int]], policies: dict[int, int], handler: threading.Thread
) -> None:
    """Three replicas: each batch of 16 KiB is read by two followers, who ask twice for it, and as much is copied."""
    registry = Registry()
    request_affinity = RequestAffinity(registry, 4, "auto")
    batches = BUSY_BYTES >> 14
    produce(registry, batches, batches << 14)
    registry.meter(catalogue.TOTAL_FETCH_REQUESTS_PER_SEC).mark(4 * batches)
    for row in (catalogue.REPLICATION_BYTES_IN_PER_SEC, catalogue.REPLICATION_BYTES_OUT_PER_SEC):
        registry.meter(row).mark(2 * batches << 14)
    request_affinity.review()
    assert handler.native_id is not None
    assert request_affinity.placement is PROMPT
    assert (placed[handler.native_id], policies[handler.native_id]) == ({5}, os.SCHED_OTHER)


def test_without_a_global_lock_threads_are_patient_on_all_cores(
    placed: dict[int, set[int]], policies: dict[int, int], monkeypatch: pytest.MonkeyPatch, handler: threading.Thread
) -> None:
    monkeypatch.setattr(affinity, "HAS_GLOBAL_LOCK", False)
    RequestAffinity(Registry(), 4, "auto").review()
    assert handler.native_id is not None
    assert (placed[handler.native_id], policies[handler.native_id]) == (CPUS, os.SCHED_BATCH)


@pytest.mark.parametrize(("setting", "cpus"), [("none", CPUS), ("auto", {1})])
def test_inactive_where_it_does_not_help(
    placed: dict[int, set[int]], monkeypatch: pytest.MonkeyPatch, setting: str, cpus: set[int]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: cpus)
    assert not RequestAffinity(Registry(), 0, setting).is_active


def test_a_container_may_forbid_scheduling_calls(
    placed: dict[int, set[int]], monkeypatch: pytest.MonkeyPatch, handler: threading.Thread
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    RequestAffinity(Registry(), 4, "auto").review()
    assert handler.native_id is not None
    assert placed[handler.native_id] == {5}


def test_an_idle_broker_is_reviewed_less_often(placed: dict[int, set[int]]) -> None:
    registry = Registry()
    request_affinity = RequestAffinity(registry, 4, "auto")
    assert {request_affinity.review() for _ in range(1 + IDLE_REVIEWS)} == {REVIEW_INTERVAL_MS}
    assert request_affinity.review() == IDLE_INTERVAL_MS
    produce(registry, 1, 1)
    assert request_affinity.review() == REVIEW_INTERVAL_MS
    assert request_affinity.review() == REVIEW_INTERVAL_MS
    assert placed
