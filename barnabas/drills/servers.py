"""Drills about processes and disks: a dead leader, a slow follower, a full disk, no controller."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from barnabas.drills.applications import creates_topics, produces
from barnabas.drills.drill import Drill, Panel
from barnabas.drills.scene import Scene, out_of_sync

ORDERS = "orders"
#: A dead broker is fenced soon, and can register again soon.
SHORT_SESSION = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}

# --- dead-leader


def kill_a_leader(scene: Scene) -> None:
    """Kill the leader of orders-0."""
    scene.create_topic(ORDERS, 3, 2, {"min.insync.replicas": "2"})
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=50))
    scene.await_that("orders come in", lambda: scene.has_records(ORDERS))
    victim = scene.leaders(ORDERS)[0]["leader"]
    scene.note(victim=victim)
    scene.act("kill", victim)
    scene.await_that(
        "the other replica is alone in the ISR",
        lambda: any(len(found["isr"]) == 1 for number, found in scene.leaders(ORDERS).items() if number == 0),
    )


def is_a_leader_dead(scene: Scene) -> Sequence[str]:
    """Whether the killed broker is down, or replicas are not in sync."""
    victim = scene.facts["victim"]
    if not scene.answers(victim):
        return [f"Broker {victim} is not running."]
    return out_of_sync(scene, ORDERS, 3)


DEAD_LEADER = Drill(
    name="dead-leader",
    title="a broker that led partitions is dead",
    brokers=3,
    config=SHORT_SESSION,
    symptom=(
        "The shop cannot write some of its orders: its producer (acks=all) gets NOT_ENOUGH_REPLICAS and gives up "
        "after five seconds. Other orders are written. Nothing was deployed. The topic is orders, with two replicas "
        "for each partition and min.insync.replicas=2."
    ),
    panels=(Panel("Replication", "Under min ISR"), Panel("Cluster", "Active brokers")),
    live="partitions: those with missing replicas come first, with their ISR; one broker is missing from the peers",
    explain=("barnabas explain partition orders-0",),
    stage=kill_a_leader,
    problems=is_a_leader_dead,
    repair=("barnabas node start {victim}",),
)

# --- slow-follower

THROTTLE = "follower.replication.throttled.rate"
#: Small fetches, so that the throttle lets through less than the shop writes.
SMALL_FETCHES = {"replica.fetch.max.bytes": "16384", "replica.fetch.response.max.bytes": "16384"}


def leave_a_throttle(scene: Scene) -> None:
    """Throttle a follower and restart it, so that it cannot catch up."""
    scene.create_topic(ORDERS, 1, 2, {"min.insync.replicas": "1"})
    follower = next(broker for broker in (0, 1) if broker != scene.leaders(ORDERS)[0]["leader"])
    scene.note(follower=follower)
    scene.reader.set_config(("topic", ORDERS), {"follower.replication.throttled.replicas": "*"})
    scene.reader.set_config(("broker", str(follower)), {THROTTLE: "1"})
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=100, size_bytes=2000))
    scene.act("stop", follower)
    missed = scene.leaders(ORDERS)[0]["log_end_offset"] + 60
    scene.await_that("orders come in", lambda: scene.leaders(ORDERS)[0]["log_end_offset"] > missed)
    scene.act("start", follower)


def is_a_follower_slow(scene: Scene) -> Sequence[str]:
    """Whether the follower is down or not in sync."""
    follower = scene.facts["follower"]
    if not scene.answers(follower):
        return [f"Broker {follower} is not running."]
    return out_of_sync(scene, ORDERS, 1)


SLOW_FOLLOWER = Drill(
    name="slow-follower",
    title="a follower does not catch up",
    brokers=2,
    config={**SHORT_SESSION, **SMALL_FETCHES},
    symptom=(
        "Broker {follower} was restarted for maintenance, and orders-0 has been under-replicated since then. The "
        "broker is up, its disk and its network are fine, and it fetches. Still, it falls further and further "
        "behind. Last week an administrator moved partitions with kafka-reassign-partitions --throttle."
    ),
    panels=(Panel("Replication", "Under-replicated partitions"), Panel("Replication", "Lag of the slowest partitions")),
    live="partitions → orders-0: the follower's lag and its last fetch",
    explain=("barnabas explain partition orders-0", "barnabas config show --broker {follower}"),
    stage=leave_a_throttle,
    problems=is_a_follower_slow,
    repair=(f"barnabas config unset --broker {{follower}} {THROTTLE}",),
)

# --- full-disk

VICTIM = 1
BALLAST = "java_pid4711.hprof"


def fill_a_disk(scene: Scene) -> None:
    """Create a file, and let writes of one broker fail while it exists."""
    scene.create_topic(ORDERS, 2, 2, {"min.insync.replicas": "1"})
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=50))
    scene.await_that("orders come in", lambda: scene.has_records(ORDERS))
    ballast = scene.directory / f"broker-{VICTIM}" / BALLAST
    ballast.write_bytes(b"")
    scene.note(victim=VICTIM, ballast=ballast.name)
    threading.Thread(target=_keep_full, args=(scene,), name="full-disk", daemon=True).start()
    scene.await_that("the broker gives up", lambda: not scene.answers(VICTIM))


def _keep_full(scene: Scene) -> None:
    """Keep the disk full while the file exists, also for a restarted broker."""
    from barnabas.faults import Fault, FaultsUnavailableError

    ballast = scene.directory / f"broker-{VICTIM}" / BALLAST
    pause = threading.Event()
    while ballast.exists():
        try:
            if not any(fault["node"] == VICTIM for fault in scene.faults.list()):
                scene.faults.add(Fault(node=VICTIM, disk_full=True))
        except FaultsUnavailableError:  # the broker is down or still starting
            pass
        pause.wait(0.2)
    scene.faults.remove_all()


def is_a_disk_full(scene: Scene) -> Sequence[str]:
    """Whether the file still exists, the broker is down, or replicas are not in sync."""
    ballast = scene.directory / f"broker-{VICTIM}" / BALLAST
    found = [f"The disk of broker {VICTIM} is full: {ballast} takes all free space."] if ballast.exists() else []
    if not scene.answers(VICTIM):
        return [*found, f"Broker {VICTIM} is not running."]
    return [*found, *out_of_sync(scene, ORDERS, 2)]


FULL_DISK = Drill(
    name="full-disk",
    title="the disk of a broker is full",
    brokers=2,
    config=SHORT_SESSION,
    symptom=(
        "Broker {victim} has ended. Each time it is started, it soon ends again. Its log "
        "({directory}/broker-{victim}/process.log) shows why. (In this drill the disk is full while "
        "{directory}/broker-{victim}/{ballast} exists.)"
    ),
    panels=(Panel("Cluster", "Active brokers"), Panel("Replication", "Offline replicas")),
    live="partitions: those with missing replicas come first; one broker is missing from the peers",
    explain=("barnabas explain partition orders-0",),
    stage=fill_a_disk,
    problems=is_a_disk_full,
    repair=("rm {directory}/broker-{victim}/{ballast}", "barnabas node start {victim}"),
)

# --- controller-gone

CONTROLLER = 100
TENANT = "tenant-"


def kill_the_controller(scene: Scene) -> None:
    """Kill the controller while an application creates topics."""
    scene.create_topic(ORDERS, 1, 1)
    scene.runs("shop", produces(scene.bootstrap, ORDERS, per_second=50))
    scene.runs("sign-up", creates_topics(scene.bootstrap, TENANT, every_s=0.3))
    scene.await_that("topics are created", lambda: scene.count_topics(TENANT) >= 2)
    scene.act("kill", CONTROLLER)
    scene.note(tenants=scene.count_topics(TENANT))
    scene.await_that("a request waits for the controller", scene.waits_for_controller)


def is_the_controller_gone(scene: Scene) -> Sequence[str]:
    """Whether the controller is down, or no topic has been created since."""
    if not scene.answers(CONTROLLER):
        return ["The controller is not running: topics, leaders and brokers cannot change."]
    if scene.count_topics(TENANT) <= scene.facts["tenants"] + 1:  # one may have been in progress
        return ["No topic has been created since."]
    return []


CONTROLLER_GONE = Drill(
    name="controller-gone",
    title="the controller is gone",
    brokers=1,
    config=SHORT_SESSION,
    symptom=(
        "New customers cannot sign up: the service that creates a topic for each customer waits, then fails. "
        "Existing customers notice nothing: records are written and read as usual."
    ),
    panels=(Panel("Cluster", "Active controller"), Panel("Cluster", "Processes")),
    live="purgatory topic: a CreateTopics waits for the controller's answer",
    explain=("barnabas explain request --client sign-up",),
    stage=kill_the_controller,
    problems=is_the_controller_gone,
    repair=("barnabas node start 100",),
)

DRILLS = (DEAD_LEADER, SLOW_FOLLOWER, FULL_DISK, CONTROLLER_GONE)
