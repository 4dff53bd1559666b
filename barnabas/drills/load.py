"""Drills about request threads: the request queue is full, all handlers are busy."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.drills.applications import lists_offsets, produces
from barnabas.drills.drill import Drill, Panel
from barnabas.drills.scene import Scene

ORDERS = "orders"

# --- full-request-queue

CULPRIT = "nightly-report"


def flood(scene: Scene) -> None:
    """Let one client fill the request queue with slow requests."""
    from barnabas.faults import Fault

    scene.create_topic(ORDERS, 1, 1)
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=20))
    scene.faults.add(Fault(api="ListOffsets", client_id=CULPRIT, delay_ms=60, holds_handler=True))
    scene.runs(CULPRIT, lists_offsets(scene.bootstrap, ORDERS, connections=16))
    scene.await_that("the request queue is full", lambda: is_the_queue_full(scene))


def is_the_queue_full(scene: Scene) -> Sequence[str]:
    """Whether the request queue is more than half full, or blocks network processors."""
    queues = [live["request_queue"] for live in scene.samples(scene.broker)]
    filled = sum(queue["total"] for queue in queues) / sum(queue["capacity"] for queue in queues)
    if filled <= 1 / 2 and not any(queue["blocked_processors"] for queue in queues):
        return []
    blocked = max(queue["blocked_processors"] for queue in queues)
    return [f"The request queue is {filled:.0%} full, and {blocked} network processors are blocked by it."]


FULL_REQUEST_QUEUE = Drill(
    name="full-request-queue",
    title="the request queue is full",
    brokers=1,
    config={"queued.max.requests": "8", "num.io.threads": "2"},
    symptom=(
        "All users report that Kafka is slow. The shop's few records take half a second each, and even listing "
        "topics is slow. The broker uses hardly any CPU, and its disk is idle."
    ),
    panels=(
        Panel("Request pipeline", "Requests in the queue"),
        Panel("Request pipeline", "Idle share of network processors"),
        Panel("Cluster", "Time of request threads by client"),
    ),
    live="request queue: full of one client's requests; blocked processors",
    explain=(f"barnabas explain request --client {CULPRIT}", "barnabas explain request --client shop"),
    stage=flood,
    problems=is_the_queue_full,
    repair=(f"barnabas drill stop {CULPRIT}",),
)

# --- saturated-handlers

# A till sends a request, waits for the response, and pauses. With 3 handlers about 4 requests wait at any time; with 6,
# less than one.
TILLS = 9
HANDLERS = 3
DISK_MS = 100
PAUSE_S = 0.06
WAITING_MAX = 1.5


def saturate(scene: Scene) -> None:
    """Give the handlers more work than they can do, from many clients."""
    from barnabas.faults import Fault

    scene.create_topic(ORDERS, 1, 1)
    scene.faults.add(Fault(api="ListOffsets", client_id="till-*", delay_ms=DISK_MS, holds_handler=True))
    for number in range(TILLS):
        scene.runs(f"till-{number}", lists_offsets(scene.bootstrap, ORDERS, connections=1, pause_s=PAUSE_S))
    scene.await_that("all handlers are busy", lambda: are_handlers_saturated(scene))


def are_handlers_saturated(scene: Scene) -> Sequence[str]:
    """Whether more than WAITING_MAX requests wait for a handler on average."""
    lives = scene.samples(scene.broker)
    waiting = sum(live["request_queue"]["total"] for live in lives) / len(lives)
    if waiting < WAITING_MAX:
        return []
    handlers = lives[-1]["handlers"]["total"]
    return [f"On average {waiting:.1f} requests wait for one of {handlers} request handlers."]


SATURATED_HANDLERS = Drill(
    name="saturated-handlers",
    title="all request handlers are busy",
    brokers=1,
    config={"num.io.threads": str(HANDLERS)},
    symptom=(
        "Requests take longer than last month. There are more tills now, and all of them are needed. Each sends a few "
        "requests a second. Nothing fails, and no single client is the cause. A request spends most of its time in "
        "the request queue. Each request waits for a slow disk, so there is spare CPU."
    ),
    panels=(
        Panel("Request pipeline", "Idle share of request handlers"),
        Panel("Request pipeline", "Requests in the queue"),
    ),
    live="handlers: all busy all the time; the request queue is never empty",
    explain=("barnabas explain request --slowest", "barnabas config show --broker 0"),
    stage=saturate,
    problems=are_handlers_saturated,
    repair=(f"barnabas config set --broker 0 num.io.threads={HANDLERS * 2}",),
)

DRILLS = (FULL_REQUEST_QUEUE, SATURATED_HANDLERS)
