"""Config keys of Barnabas, which Apache Kafka does not have.

Part of THE table (see `keys.py`): a row has its facts in the first line and its documentation in the second.
"""

from __future__ import annotations

from barnabas.config.listeners import SSL_STORE_KEYS
from barnabas.config.table.keys_security import SECURITY_ROWS

# fmt: off
from barnabas.config.table.notation import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    STRING,
    Key,
)
from barnabas.config.validators import PAGE_ADDRESSES, at_least, between, one_of
from barnabas.protocol.data.releases import ALIASES, RELEASES

#: Settings of TLS that the pages have as well, as `barnabas.pages.ssl.…`.
PAGE_SSL_KEYS = frozenset({*SSL_STORE_KEYS, "ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols"})

OWN_ROWS: tuple[Key, ...] = (
    Key("barnabas.busy.poll.max.us", INT, 200, LOW, between(0, 10_000),
        "Microseconds that an idle network thread spins before it sleeps, if its client usually sends the next request "
        "within that time; 0 never spins.",
        honoured=True),
    Key("barnabas.cpu.affinity", STRING, "auto", LOW, one_of("auto", "none"),
        "auto keeps a broker's network threads and request handlers on one core unless large batches move, which is "
        "faster with a global interpreter lock; none never does.",
        honoured=True),
    Key("barnabas.delegation.tokens.per.owner.max", INT, 1000, LOW, at_least(0),
        "Most delegation tokens that a principal owns at a time; those that have expired count until they are removed.",
        honoured=True),
    Key("barnabas.connections.per.processor", INT, 64, LOW, at_least(1),
        "Connections that a network thread gets before the next thread gets any, which is faster with a global "
        "interpreter lock; connections that move large data are assigned in turn. 1 assigns all in turn, as Kafka.",
        honoured=True),
    Key("barnabas.live.peers", LIST, (), LOW, PAGE_ADDRESSES,
        "Addresses of the live pages of the cluster's processes, for the switch between them: ROLE-ID=HOST:PORT, ..., "
        "for example broker-0=127.0.0.1:9404. barnabas up sets it.",
        honoured=True),
    Key("barnabas.clock.enable", BOOLEAN, False, LOW, None,
        "For tests: the time that this process takes for retention, compaction, groups, transactions and tokens can be "
        "moved forward, by HTTP beside its /metrics page. Everybody with its token can then make data expire.",
        honoured=True),
    Key("barnabas.clock.file", STRING, "", LOW, None,
        "With barnabas.clock.enable: the file that keeps by how much the clock was moved, so that a process that "
        "starts later has the same time; empty keeps it in memory. The processes of a local cluster share one.",
        honoured=True),
    Key("barnabas.compat.release", STRING, "", LOW, one_of("", *ALIASES, *RELEASES),
        "The release of Apache Kafka as which a broker answers its clients: it lists the APIs, versions and features "
        "of that release, and closes connections that use later ones. 0.10 is the newest 0.10.",
        honoured=True),
    Key("barnabas.faults.enable", BOOLEAN, False, LOW, None,
        "For tests: faults can be injected into this process, and its requests recorded, by HTTP beside its /metrics "
        "page. Everybody with its token can then break the process.",
        honoured=True),
    Key("barnabas.faults.recorder.capacity", INT, 0, LOW, between(0, 1_000_000),
        "With barnabas.faults.enable: how many requests are recorded from the start; 0 records none until recording is "
        "switched on.",
        honoured=True),
    Key("barnabas.lock.counts", BOOLEAN, False, LOW, None,
        "For measuring: a broker counts how often the locks of its requests are taken, how often a thread waits for "
        "them and how long, and shows that on the /metrics page. Each of these locks then costs more.",
        honoured=True),
    Key("barnabas.log.format", STRING, "plain", LOW, one_of("plain", "json"),
        "plain writes log lines as Kafka does, json each as a JSON object.",
        honoured=True),
    Key("barnabas.request.max.bytes", INT, 16_777_216, MEDIUM, at_least(65_536),
        "Largest request of most kinds. A larger one is refused before it is decoded: its connection is closed, and a "
        "log line names it. Produce, JoinGroup, SyncGroup and requests between nodes are bounded by "
        "socket.request.max.bytes only.",
        honoured=True),
    Key("barnabas.slow.motion.network.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long a network thread pauses before it queues the requests that it has read.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.slow.motion.request.queue.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long a request stays in the request queue at least.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.slow.motion.handler.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long a request handler pauses before it carries out a client's request.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.slow.motion.response.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long a response stays in the response queue at least.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.slow.motion.fetcher.ms", INT, 0, LOW, between(0, 60_000),
        "Slow motion: how long a replica fetcher pauses after each fetch. Below half of replica.lag.time.max.ms, the "
        "replica stays in sync.",
        mode=CLUSTER_WIDE, honoured=True, live=True),
    Key("barnabas.stray.retention.ms", LONG, 604_800_000, MEDIUM, at_least(-1),
        "How long a stray log, which metadata does not know, is kept (barnabas stray list) before it is deleted; -1 "
        "keeps it until it is deleted by command.",
        honoured=True),
    Key("barnabas.slow.request.ms", LONG, 1000, LOW, at_least(-1),
        "A request that takes longer is logged with its six times. The intended wait of a fetch or of a group member "
        "does not count. -1 logs none.",
        honoured=True),
    Key("barnabas.metadata.lag.max.ms", INT, 18_000, MEDIUM, at_least(1),
        "For a controller: time after which it fences a broker that sends heartbeats, but does not apply pushes that "
        "other brokers have applied (a link cut in one direction). The broker is unfenced once it has caught up.",
        honoured=True),
    Key("barnabas.metrics.dialect", STRING, "both", LOW, one_of("both", "strimzi", "confluent"),
        "Metric names on the /metrics page: strimzi for the dashboards of Strimzi and Barnabas, confluent for those of "
        "Confluent and Grafana, or both. One dialect makes a smaller page.",
        honoured=True),
    Key("barnabas.ssl.handshake.timeout.ms", INT, 30_000, LOW, at_least(1),
        "Time in which a client must complete its TLS handshake.",
        honoured=True),
    Key("barnabas.ssl.handshakes.max", INT, 1000, LOW, at_least(1),
        "Most TLS handshakes of a network thread that have begun and are not complete; further ones wait.",
        honoured=True),
    Key("barnabas.ssl.review.interval.ms", INT, 10_000, LOW, at_least(100),
        "Time between looks for certificates that changed on disk.",
        honoured=True),
    Key("barnabas.metrics.host", STRING, "127.0.0.1", MEDIUM, None,
        "Address that the /metrics page listens on. 0.0.0.0 means all interfaces, of IPv6 too.",
        honoured=True),
    Key("barnabas.metrics.hosts", LIST, (), LOW, None,
        "Further host names of the pages (/metrics, /live, /faults). Addresses, localhost, names without a dot and the "
        "names that the process listens on or advertises are known. A request for another name is refused, since a "
        "foreign site could have made that name point here (DNS rebinding). * allows all.",
        honoured=True),
    Key("barnabas.metrics.port", INT, -1, HIGH, between(-1, 65535),
        "Port of the /metrics page: 0 for a free one, -1 for none.",
        honoured=True),
    Key("barnabas.pages.auth.token", PASSWORD, None, HIGH, None,
        "Token that requests for the pages (/metrics, /live, /faults) must carry: Authorization: Bearer TOKEN, or in a "
        "browser the user token with it as the password. /healthz and /readyz stay open.",
        honoured=True),
    Key("barnabas.pages.auth.users", PASSWORD, None, MEDIUM, None,
        "Users who may ask for the pages by HTTP basic authentication: NAME:PASSWORD, ...",
        honoured=True),
    Key("barnabas.pages.change.token", PASSWORD, None, MEDIUM, None,
        "Token that a request must carry that changes something (POST and DELETE of /faults, /recorder and /clock), as "
        "with barnabas.pages.auth.token; it also opens the pages. Without it, the credentials of barnabas.pages.auth "
        "are enough, and without those nothing can be changed. barnabas up makes one where none of them is set.",
        honoured=True),
    *(
        Key(f"barnabas.pages.{row.name}", row.type, row.default, row.importance, row.validator,
            f"As {row.name}, for the pages (/metrics, /live, /faults), which are served over TLS if they have a key "
            "store; it does not follow the keys of the listeners.",
            honoured=True)
        for row in SECURITY_ROWS if row.name in PAGE_SSL_KEYS
    ),
    Key("barnabas.record.decompressed.max.bytes", INT, 268_435_456, MEDIUM, between(1_048_576, 1_073_741_824),
        "Largest size of a compressed batch's records after decompression; a larger one gets MESSAGE_TOO_LARGE. Above "
        "64 MiB, one batch is decompressed at a time.",
        honoured=True),
    Key("barnabas.record.validation", STRING, "full", MEDIUM, one_of("full", "header"),
        "full reads every field of every produced record; header trusts the batch header, unless the topic needs the "
        "records (compaction, timestamp bounds, another compression).",
        honoured=True),
    Key("allow.everyone.if.no.acl.found", BOOLEAN, False, HIGH, None,
        "Whether everybody may do what no ACL is about. Kafka's authorizer reads this key, and the next one.",
        honoured=True),
    Key("super.users", STRING, "", HIGH, None,
        "Principals that may do everything, separated by semicolons: User:admin;User:broker.",
        honoured=True),
    Key("internal.segment.bytes", INT, None, LOW, None,
        "For tests: size at which a new segment starts, below the minimum of log.segment.bytes.",
        honoured=True, internal=True),
    Key("log.initial.task.delay.ms", LONG, 30_000, LOW, at_least(0),
        "For tests: time from the start of a broker to the first run of its periodic work on logs.",
        honoured=True, internal=True),
    Key("producer.id.expiration.check.interval.ms", INT, 600_000, LOW, at_least(1),
        "For tests: time between two looks for idle producers, see producer.id.expiration.ms.",
        honoured=True, internal=True),
    Key("unstable.api.versions.enable", BOOLEAN, False, LOW, None,
        "Whether brokers list and serve versions of APIs that Kafka 4.3 marks as unstable: InitProducerId v6, for "
        "two-phase commits. Kafka has this key too, and does not document it.",
        honoured=True, internal=True),
)
