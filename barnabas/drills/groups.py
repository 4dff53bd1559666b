"""Incidents of applications: a group that rebalances without end, a record that its reader cannot read."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.drills.applications import comes_and_goes, produces, reads
from barnabas.drills.drill import Drill, Panel
from barnabas.drills.scene import Scene

ORDERS = "orders"
BILLING = "billing"

# --- rebalance-storm

CANARY = "billing-canary"
READERS = 2
LOOKS = 10  # in some of them at least it rebalances


def start_a_storm(scene: Scene) -> None:
    scene.create_topic(ORDERS, 6, 1)
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=50))
    for number in range(READERS):
        scene.runs(f"billing-{number}", reads(scene.bootstrap, ORDERS, BILLING))
    scene.await_that("the group is stable", lambda: not does_it_storm(scene))
    scene.runs(CANARY, comes_and_goes(scene.bootstrap, ORDERS, BILLING, stay_s=0.2))
    scene.await_that("it rebalances", lambda: does_it_storm(scene))


def does_it_storm(scene: Scene) -> Sequence[str]:
    """Whether the group has another generation, or is not stable, within some samples."""
    seen = scene.samples(lambda: scene.group(BILLING), LOOKS)
    generations = {group["generation"] for group in seen if group is not None}
    states = {group["state"] if group is not None else "nowhere" for group in seen}
    if states != {"Stable"} or len(generations) > 1:
        return [f"Group {BILLING} is {' and '.join(sorted(states))} by turns, in {len(generations)} generations."]
    assert seen[-1] is not None
    members = seen[-1]["members"]["total"]
    return [] if members >= READERS else [f"Group {BILLING} has {members} members: {READERS} are needed."]


REBALANCE_STORM = Drill(
    name="rebalance-storm",
    title="a group rebalances without end",
    brokers=1,
    symptom=(
        "Invoices are late. Two instances of the billing service run, both are healthy, and a third one was "
        "deployed today to try a new version. All of them read, for moments; most of the time they wait for "
        "each other."
    ),
    panels=(Panel("Consumer lag", "Rebalances completed"), Panel("Consumer lag", "Groups by state")),
    live="groups → billing: its generation rises; who is joining, who is waited for",
    explain=(f"barnabas explain group {BILLING}",),
    stage=start_a_storm,
    problems=does_it_storm,
    repair=(f"barnabas drill stop {CANARY}",),
)

# --- poison-batch

POISON = b"\x00\x01 not JSON"


def poison(scene: Scene) -> None:
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
    scene.await_that("the records behind it pile up", lambda: is_it_stuck(scene))


def _committed(scene: Scene) -> int:
    return scene.reader.committed(BILLING).get((ORDERS, 0), 0)


def is_it_stuck(scene: Scene) -> Sequence[str]:
    committed, poison_offset = _committed(scene), scene.facts["poison"]
    if committed <= poison_offset:
        end = scene.leaders(ORDERS)[0]["high_watermark"]
        return [f"Group {BILLING} has committed {committed} of orders-0, which ends at {end}, and stays there."]
    group = scene.group(BILLING)
    if group is None or group["state"] != "Stable":
        return [f"Nobody reads for group {BILLING}."]
    return []


POISON_BATCH = Drill(
    name="poison-batch",
    title="a batch holds a record that its reader cannot read",
    brokers=1,
    symptom=(
        "No order has been billed for a while. The billing service is up; it dies and is started again, "
        "several times a second. Its log says, every time: JSONDecodeError. The shop's developers have "
        "looked: what they write is JSON."
    ),
    panels=(Panel("Consumer lag", "Lag"), Panel("Consumer lag", "Offsets committed")),
    live="groups → billing: its member comes and goes, and commits nothing",
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
