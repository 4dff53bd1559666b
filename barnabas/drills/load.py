"""Incidents of request threads: the request queue is full, all handlers are busy."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.drills.applications import asks, produces
from barnabas.drills.drill import Drill, Panel
from barnabas.drills.scene import Scene

ORDERS = "orders"

# --- full-request-queue

CULPRIT = "nightly-report"


def flood(scene: Scene) -> None:
    from barnabas.faults import Fault

    scene.create_topic(ORDERS, 1, 1)
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=20))
    scene.faults.add(Fault(api="ListOffsets", client_id=CULPRIT, delay_ms=60, holds_handler=True))
    scene.runs(CULPRIT, asks(scene.bootstrap, ORDERS, connections=16))
    scene.await_that("the request queue is full", lambda: is_the_queue_full(scene))


def is_the_queue_full(scene: Scene) -> Sequence[str]:
    queues = [live["request_queue"] for live in scene.samples(scene.broker)]
    filled = sum(queue["total"] for queue in queues) / sum(queue["capacity"] for queue in queues)
    if filled <= 1 / 2 and not any(queue["blocked_processors"] for queue in queues):
        return []
    blocked = max(queue["blocked_processors"] for queue in queues)
    return [f"The request queue is filled to {filled:.0%}, {blocked} network processors wait for room in it."]


FULL_REQUEST_QUEUE = Drill(
    name="full-request-queue",
    title="the request queue is full",
    brokers=1,
    config={"queued.max.requests": "8", "num.io.threads": "2"},
    symptom=(
        "Everybody complains that Kafka is slow: the shop, whose few records take half a second each, and people "
        "who only list topics. The broker uses hardly any CPU, and its disk is idle."
    ),
    panels=(
        Panel("Request pipeline", "Requests in the queue"),
        Panel("Request pipeline", "Idle share of network processors"),
        Panel("Cluster", "Time of request threads by client"),
    ),
    live="request queue: full, of requests of one client; processors wait for room",
    explain=(f"barnabas explain request --client {CULPRIT}", "barnabas explain request --client shop"),
    stage=flood,
    problems=is_the_queue_full,
    repair=(f"barnabas drill stop {CULPRIT}",),
)

# --- saturated-handlers

# A till asks, waits for the answer, and pauses. With 3 handlers some 4 requests wait at any time; with 6 hardly one.
TILLS = 9
HANDLERS = 3
DISK_MS = 100
PAUSE_S = 0.06
WAITING_MAX = 1.5


def saturate(scene: Scene) -> None:
    from barnabas.faults import Fault

    scene.create_topic(ORDERS, 1, 1)
    scene.faults.add(Fault(api="ListOffsets", client_id="till-*", delay_ms=DISK_MS, holds_handler=True))
    for number in range(TILLS):
        scene.runs(f"till-{number}", asks(scene.bootstrap, ORDERS, connections=1, pause_s=PAUSE_S))
    scene.await_that("the handlers are all busy", lambda: are_handlers_saturated(scene))


def are_handlers_saturated(scene: Scene) -> Sequence[str]:
    lives = scene.samples(scene.broker)
    waiting = sum(live["request_queue"]["total"] for live in lives) / len(lives)
    if waiting < WAITING_MAX:
        return []
    handlers = lives[-1]["handlers"]["total"]
    return [f"{waiting:.1f} requests wait on average for one of {handlers} request handlers."]


SATURATED_HANDLERS = Drill(
    name="saturated-handlers",
    title="all request handlers are busy",
    brokers=1,
    config={"num.io.threads": str(HANDLERS)},
    symptom=(
        "Requests take longer than last month. There are more tills now, each asks the broker some times a "
        "second, and all of them are needed. Nothing fails, and no client is to blame; a request spends most "
        "of its time before anybody has looked at it. Each waits for a slow disk for a while: there is CPU to "
        "spare."
    ),
    panels=(
        Panel("Request pipeline", "Idle share of request handlers"),
        Panel("Request pipeline", "Requests in the queue"),
    ),
    live="handlers: all at work, all the time; the request queue is never empty",
    explain=("barnabas explain request --slowest", "barnabas config show --broker 0"),
    stage=saturate,
    problems=are_handlers_saturated,
    repair=(f"barnabas config set --broker 0 num.io.threads={HANDLERS * 2}",),
)

DRILLS = (FULL_REQUEST_QUEUE, SATURATED_HANDLERS)
