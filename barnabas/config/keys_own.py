"""Config keys: our own, which Apache Kafka does not have.

Part of THE table (see `keys.py`): each row holds the facts in its first line and our words in its second.
"""

from __future__ import annotations

# fmt: off
from barnabas.config.notation import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING, Key
from barnabas.config.validators import PAGE_ADDRESSES, at_least, between, one_of

OWN_ROWS: tuple[Key, ...] = (
    Key("barnabas.busy.poll.max.us", INT, 200, LOW, between(0, 10_000),
        "A network thread that is asked for something again and again within so many microseconds looks for the next "
        "request so long before it sleeps; 0 never does.",
        honoured=True),
    Key("barnabas.cpu.affinity", STRING, "auto", LOW, one_of("auto", "none"),
        "auto keeps a broker's network threads and request handlers on one core unless large batches move, which is "
        "quicker where the interpreter has a global lock; none never does.",
        honoured=True),
    Key("barnabas.connections.per.processor", INT, 64, LOW, at_least(1),
        "A network thread is given so many connections before the next one gets any, which is quicker where the "
        "interpreter has a global lock; those that move large pieces are dealt in turn. 1 deals all in turn, as Kafka.",
        honoured=True),
    Key("barnabas.live.peers", LIST, (), LOW, PAGE_ADDRESSES,
        "Where the live pages of the cluster's processes are, for the switch between them: ROLE-ID=HOST:PORT, ..., for "
        "example broker-0=127.0.0.1:9404. barnabas up sets it.",
        honoured=True),
    Key("barnabas.faults.enable", BOOLEAN, False, LOW, None,
        "For tests: faults can be injected into this process, and its requests recorded, by HTTP beside its /metrics "
        "page. Whoever reaches that page can then break the process.",
        honoured=True),
    Key("barnabas.faults.recorder.capacity", INT, 0, LOW, between(0, 1_000_000),
        "With barnabas.faults.enable: how many requests are recorded from the start; 0 records none until it is "
        "asked for.",
        honoured=True),
    Key("barnabas.log.format", STRING, "plain", LOW, one_of("plain", "json"),
        "plain writes log lines as Kafka does, json each as a JSON object.",
        honoured=True),
    Key("barnabas.request.max.bytes", INT, 16_777_216, MEDIUM, at_least(65_536),
        "A larger request of most kinds is refused before it is decoded: its connection is closed, and a line in the "
        "log names it. Not so Produce, JoinGroup, SyncGroup and what nodes tell each other, which only "
        "socket.request.max.bytes bounds.",
        honoured=True),
    Key("barnabas.slow.motion.network.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long a network thread pauses before it queues the requests that it has read.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.slow.motion.request.queue.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long a request stays in the request queue at least.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.slow.motion.handler.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long a request handler pauses with a client's request in hand.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.slow.motion.response.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long an answer stays in the response queue at least.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.slow.motion.fetcher.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long a replica fetcher pauses after each fetch. With less than half of "
        "replica.lag.time.max.ms the replica stays in sync.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.stray.retention.ms", LONG, 604_800_000, MEDIUM, at_least(-1),
        "How long a log that metadata does not know is kept aside (barnabas stray list) before it is deleted; -1 keeps "
        "it until somebody deletes it.",
        honoured=True),
    Key("barnabas.slow.request.ms", LONG, 1000, LOW, at_least(-1),
        "A request that takes longer is logged with its six times (but for the time that a fetch or a member of a "
        "group waits on purpose); -1 logs none.",
        honoured=True),
    Key("barnabas.metadata.lag.max.ms", INT, 18_000, MEDIUM, at_least(1),
        "For a controller: it fences a broker that reports but has not applied for so long what the controller pushes, "
        "and others have (a link that is cut in one direction); it returns when it has applied what it missed.",
        honoured=True),
    Key("barnabas.metrics.dialect", STRING, "both", LOW, one_of("both", "strimzi", "confluent"),
        "Names on the /metrics page: strimzi is what Strimzi's dashboards and Barnabas's own query, confluent what "
        "Confluent's do, both those and Grafana's. One dialect is a smaller page.",
        honoured=True),
    Key("barnabas.metrics.host", STRING, "127.0.0.1", MEDIUM, None,
        "Address that the /metrics page listens on.",
        honoured=True),
    Key("barnabas.metrics.hosts", LIST, (), LOW, None,
        "Further names under which the pages (/metrics, /live, /faults) are asked. Addresses, localhost, names without "
        "a dot and those that the process listens on or advertises are known; a page under another name is refused, "
        "since a foreign site could have made that name up (DNS rebinding). * allows all.",
        honoured=True),
    Key("barnabas.metrics.port", INT, -1, HIGH, between(-1, 65535),
        "Port of the /metrics page: 0 for a free one, -1 for none.",
        honoured=True),
    Key("barnabas.record.decompressed.max.bytes", INT, 268_435_456, MEDIUM, between(1_048_576, 1_073_741_824),
        "A compressed batch whose records are more bytes than this is refused with MESSAGE_TOO_LARGE. What is over 64 "
        "MiB is decompressed for one batch at a time.",
        honoured=True),
    Key("barnabas.record.validation", STRING, "full", MEDIUM, one_of("full", "header"),
        "full reads every field of every record that is produced; header trusts what a batch's header says of them, "
        "unless the topic needs the records (compaction, bounds of timestamps, another compression).",
        honoured=True),
    Key("allow.everyone.if.no.acl.found", BOOLEAN, False, HIGH, None,
        "Kafka's authorizer lets everyone do what no ACL speaks of; must be true for authorizer.class.name.",
        honoured=True),
    Key("internal.segment.bytes", INT, None, LOW, None,
        "Size at which a new segment is begun, smaller than log.segment.bytes may be: for tests only.",
        honoured=True),
)
