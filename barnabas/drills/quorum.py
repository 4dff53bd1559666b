"""A drill about a quorum of controllers: a majority is dead."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.drills.applications import creates_topics, produces
from barnabas.drills.drill import Drill, Panel
from barnabas.drills.scene import Scene

ORDERS, TENANT = "orders", "tenant-"
CONTROLLERS = (100, 101, 102)
MAJORITY = 2


def kill_a_majority(scene: Scene) -> None:
    """Kill two of three controllers while an application creates topics."""
    scene.create_topic(ORDERS, 1, 1)
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=50))
    scene.runs("sign-up", creates_topics(scene.bootstrap, TENANT, every_s=0.3))
    scene.await_that("topics are created", lambda: scene.count_topics(TENANT) >= 2)
    first, second, left = CONTROLLERS
    scene.act("kill", first)
    before = scene.count_topics(TENANT)
    scene.await_that("two controllers go on", lambda: scene.count_topics(TENANT) > before + 1)
    scene.act("kill", second)
    scene.note(first=first, left=left, tenants=scene.count_topics(TENANT))
    # Why several samples: a request that is answered soon is in the purgatory for a moment, too.
    scene.await_that("a request waits for a controller", lambda: all(scene.samples(scene.waits_for_controller)))


def is_the_quorum_lost(scene: Scene) -> Sequence[str]:
    """Whether a controller is down, or no topic has been created since."""
    running = [node_id for node_id in CONTROLLERS if scene.answers(node_id)]
    if len(running) < MAJORITY:
        return [f"{len(running)} of {len(CONTROLLERS)} controllers runs. They need {MAJORITY} to elect the active one."]
    if len(running) < len(CONTROLLERS):
        return ["A controller is not running: the next failure would stop the others again."]
    if scene.count_topics(TENANT) <= scene.facts["tenants"] + 1:  # one may have been in progress
        return ["No topic has been created since."]
    return []


QUORUM_LOST = Drill(
    name="quorum-lost",
    title="the quorum of controllers is lost",
    brokers=1,
    controllers=len(CONTROLLERS),
    symptom=(
        "New customers cannot sign up: the service that creates a topic for each customer waits, then fails. Existing "
        "customers notice nothing. Controller {left} runs, and its log has no error. Controller {first} ended an hour "
        "ago, and nobody noticed, since everything worked."
    ),
    panels=(Panel("Cluster", "Active controller"), Panel("Cluster", "Roles")),
    live="purgatory topic: a CreateTopics waits for the controller's answer",
    explain=("barnabas explain request --client sign-up",),
    stage=kill_a_majority,
    problems=is_the_quorum_lost,
    repair=("barnabas node start 101", "barnabas node start 100"),
)

DRILLS = (QUORUM_LOST,)
