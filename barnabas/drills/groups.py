"""Drills about consumer groups: a group that rebalances without end, a record that its reader cannot read."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.drills.applications import joins_and_leaves, produces, reads
from barnabas.drills.drill import Drill, Panel
from barnabas.drills.scene import Scene

ORDERS = "orders"
BILLING = "billing"

# --- rebalance-storm

CANARY = "billing-canary"
READERS = 2
STORM_SAMPLES = 10  # at least one of them is within a rebalance


def start_a_storm(scene: Scene) -> None:
    """Add a member that joins and leaves all the time."""
    scene.create_topic(ORDERS, 6, 1)
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=50))
    for number in range(READERS):
        scene.runs(f"billing-{number}", reads(scene.bootstrap, ORDERS, BILLING))
    scene.await_that("the group is stable", lambda: not does_it_storm(scene))
    scene.runs(CANARY, joins_and_leaves(scene.bootstrap, ORDERS, BILLING, stay_s=0.2))
    scene.await_that("it rebalances", lambda: does_it_storm(scene))


def does_it_storm(scene: Scene) -> Sequence[str]:
    """Whether the group's generation changes, or the group is not stable, within several samples."""
    seen = scene.samples(lambda: scene.group(BILLING), STORM_SAMPLES)
    generations = {group["generation"] for group in seen if group is not None}
    states = {group["state"] if group is not None else "nowhere" for group in seen}
    if states != {"Stable"} or len(generations) > 1:
        return [f"Group {BILLING} alternates: {', '.join(sorted(states))}, in {len(generations)} generations."]
    assert seen[-1] is not None
    members = seen[-1]["members"]["total"]
    return [] if members >= READERS else [f"Group {BILLING} has {members} members, but {READERS} are needed."]


REBALANCE_STORM = Drill(
    name="rebalance-storm",
    title="a group rebalances without end",
    brokers=1,
    symptom=(
        "Invoices are late. Two healthy instances of the billing service run, and a third one was deployed today "
        "to try a new version. All of them read only for moments; most of the time they wait for each other."
    ),
    panels=(Panel("Consumer lag", "Rebalances completed"), Panel("Consumer lag", "Groups by state")),
    live="groups → billing: its generation keeps rising; members that join, and members that it waits for",
    explain=(f"barnabas explain group {BILLING}",),
    stage=start_a_storm,
    problems=does_it_storm,
    repair=(f"barnabas drill stop {CANARY}",),
)

# --- poison-batch

POISON = b"\x00\x01 not JSON"


def poison(scene: Scene) -> None:
    """Produce a batch with a record that is not JSON, and wait until the reader is stuck."""
    from confluent_kafka import Producer

    scene.create_topic(ORDERS, 1, 1)
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=30))
    scene.runs(BILLING, reads(scene.bootstrap, ORDERS, BILLING))
    scene.await_that("the first orders are billed", lambda: _committed(scene) > 0)
    producer = Producer({"bootstrap.servers": scene.bootstrap, "linger.ms": 50})
    where: list[int | None] = []
    for value in (b'{"order": "good"}', POISON, b'{"order": "good too"}'):
        producer.produce(ORDERS, value, on_delivery=lambda _error, message: where.append(message.offset()))
    producer.flush(30)
    offset = int(where[1] or 0)
    scene.note(poison=offset, after=offset + 1)
    scene.await_that("the reader is stuck", lambda: is_it_stuck(scene))


def _committed(scene: Scene) -> int:
    return scene.reader.committed(BILLING).get((ORDERS, 0), 0)


def is_it_stuck(scene: Scene) -> Sequence[str]:
    """Whether the group is still before the poisoned record, or is not reading."""
    committed, poison_offset = _committed(scene), scene.facts["poison"]
    if committed <= poison_offset:
        end = scene.leaders(ORDERS)[0]["high_watermark"]
        return [f"Group {BILLING} is stuck at offset {committed} of orders-0, which ends at {end}."]
    group = scene.group(BILLING)
    if group is None or group["state"] != "Stable":
        return [f"Group {BILLING} has no stable member that reads."]
    return []


POISON_BATCH = Drill(
    name="poison-batch",
    title="a batch holds a record that its reader cannot read",
    brokers=1,
    symptom=(
        "No order has been billed for a while. The billing service crashes and restarts several times a second. Its "
        "log shows a JSONDecodeError each time. The shop's developers have checked that they write JSON only."
    ),
    panels=(Panel("Consumer lag", "Lag"), Panel("Consumer lag", "Offsets committed")),
    live="groups → billing: its member joins and leaves, and commits nothing",
    explain=(f"barnabas explain group {BILLING}", f"barnabas group describe {BILLING}"),
    stage=poison,
    problems=is_it_stuck,
    repair=(
        f"barnabas drill stop {BILLING}",
        f"barnabas group reset-offsets {BILLING} --topic orders --to-offset {{after}} --execute",
        f"barnabas drill resume {BILLING}",
    ),
)

DRILLS = (REBALANCE_STORM, POISON_BATCH)
