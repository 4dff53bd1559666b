"""The shape of `GET /live.json`: the present state of a broker or a controller.

Every process serves it beside /metrics. The live page (`/live`), `barnabas top` and `barnabas explain` read nothing
else. Keys are in snake_case and end with their unit (`_ms`, `_bytes`); ages are in milliseconds up to `at_ms`. Nothing
is stopped while the state is read, so two values may belong to different moments and disagree.

Query parameters
    limit=50        upper limit for the items of a list (1 to 1000); each list also has its `total`
    topic=NAME      only this topic's partitions, and operations in purgatories
    partition=N     only partitions of this number
    group=ID        only this group
    section=A,B     only these keys of `BrokerLive` or `ControllerLive` (`at_ms` and `node` always)

`STATIONS` (live_constants.py) are the six stations of a request, and the keys of its six times. A request is in one
place at a time (`Place`): in the request queue, with a handler, parked (in a purgatory or elsewhere), in a response
queue, being sent.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Place = Literal["request_queue", "handler", "parked", "response_queue", "sending"]


class Peer(TypedDict):
    """A process of the cluster, with the address of its page."""

    id: int
    role: str  # "broker" or "controller"
    address: str  # host:port of its pages
    is_self: bool


class Node(TypedDict):
    """The process that answers."""

    id: int
    role: Literal["broker", "controller"]
    state: str  # "running", "starting", ...; a controller's is "serving"
    epoch: int  # broker epoch; the controller's epoch
    cluster_id: str
    controller_id: int
    version: str  # of this software
    up_ms: int
    peers: list[Peer]  # all processes of the cluster with known pages, with this one


class RequestShape(TypedDict):
    """A request in progress, or one that is done."""

    api: str | None  # None: it cannot be decoded
    version: int
    correlation_id: int
    client_id: str | None
    connection: str
    listener: str
    follower_id: int | None  # of a follower's fetch: the broker that fetches
    size_bytes: int
    age_ms: float  # since its last byte arrived; of one that is done: since its response was sent
    place: Place | Literal["done"]
    times_ms: dict[str, float]  # by station, up to the present one
    total_ms: float
    own_ms: float  # without an intended wait (of a fetch for bytes, of a member for its group)


class Position(TypedDict):
    """The offset at which a fetch reads a partition, and the end of what it may read (exclusive)."""

    topic: str
    partition: int
    offset: int
    end: int


class Reason(TypedDict):
    """A reason why an operation waits. `text` continues a sentence after "waits": "for offset 1042 of ..."."""

    kind: str  # replica, min_isr, high_watermark, leader, bytes, log_start, members, delay, assignment, ...
    text: str
    topic: NotRequired[str]
    partition: NotRequired[int]
    offset: NotRequired[int]  # everything below it is needed (kind bytes: the fetch reads from it)
    replica: NotRequired[int]  # the broker that lags
    replica_offset: NotRequired[int]  # its end offset; -1: it has not fetched yet
    last_fetch_ms: NotRequired[int]  # ms since it fetched; -1: never
    high_watermark: NotRequired[int]
    isr: NotRequired[list[int]]
    min_isr: NotRequired[int]
    min_bytes: NotRequired[int]
    available_bytes: NotRequired[int]
    partition_count: NotRequired[int]  # of a fetch
    positions: NotRequired[list[Position]]  # likewise, of some of its partitions
    group: NotRequired[str]
    members: NotRequired[list[str]]  # member ids that are missing
    left_ms: NotRequired[int]  # until the wait times out


class Waiting(TypedDict):
    """A waiting operation, with its reasons."""

    operation: str  # "produce", "fetch", "delete records", "join", ...
    keys: list[str]  # some of the keys that it waits on: partitions, topics
    key_count: int
    request: RequestShape | None  # None: no request waits (a coordinator's append)
    client_id: str | None
    age_ms: float
    deadline_ms: float | None  # until its timeout; None: it has none
    reasons: list[Reason]  # the first ten
    sentence: str  # "produce of client A waits for offset 1042 of orders-0 on replica 3, whose fetcher is at 1017 ..."


class Listed(TypedDict):
    """A list of limited length: `items` are some of `total`."""

    total: int
    items: list[Any]


class Acceptor(TypedDict):
    """The thread of a listener that accepts connections."""

    listener: str
    security_protocol: str
    port: int
    connections: int
    connections_accepted: int  # since the start
    processors: list[int]  # ids


class Processor(TypedDict):
    """A network thread."""

    id: int
    listener: str
    state: Literal["sleeping", "working", "waiting_for_room"]  # waiting for space in the request queue
    doing: str  # the state in words
    idle: float  # share of the last 30 to 60 s, 0 to 1
    inbox: int  # accepted connections that wait for it
    inbox_capacity: int
    connections: int
    muted: int  # connections whose request is in progress
    requests: int  # finished since the start
    response_queue: Listed  # of RequestShape
    sending: Listed  # of RequestShape: responses that wait for space in the client's socket


class Throttled(TypedDict):
    """A connection that stays muted because its client has used more than a quota allows."""

    connection: str
    listener: str
    principal: str
    quota: str  # its name, such as producer_byte_rate; "" if another process decided
    user: str  # whose use counts together; "" if the user does not matter
    client_id: str  # likewise
    limit: float
    observed: float  # the rate that is above the limit; of controller_mutation_rate the tokens left
    left_ms: float  # until it goes on
    sentence: str  # "client id etl goes on in 1.2 s: its producer_byte_rate is 1234567, and its limit 1000000"


class RequestQueue(TypedDict):
    """The queue between processors and handlers."""

    capacity: int
    total: int
    items: list[RequestShape]  # oldest first
    blocked_processors: int  # processors that wait for space


class Handler(TypedDict):
    """A request handler thread."""

    id: int
    state: Literal["idle", "busy"]
    doing: str  # in words
    since_ms: float  # since it started doing that
    request: RequestShape | None


class Handlers(TypedDict):
    """All request handlers."""

    total: int
    sleeping: int
    idle: float  # share of the last minute, 0 to 1
    items: list[Handler]


class Purgatory(TypedDict):
    """A place where operations wait for an event or a timeout."""

    name: str
    watched: int  # PurgatorySize: an operation counts once for each key
    delayed: int  # NumDelayedOperations
    items: list[Waiting]  # oldest first, of those looked at


class Replica(TypedDict):
    """A replica of a partition, as its leader knows it; of the leader itself only the offsets."""

    broker: int
    is_leader: bool
    is_in_sync: bool
    is_alive: bool
    log_end_offset: int  # -1: it has not fetched yet
    log_start_offset: int
    lag: int  # records behind the leader; -1: unknown
    last_fetch_ms: int  # ms ago; -1: never, or the leader itself
    last_caught_up_ms: int  # likewise


class Partition(TypedDict):
    """A replica of a partition on this broker."""

    topic: str
    partition: int
    topic_id: str
    role: Literal["leader", "follower"]
    leader: int  # -1: none
    leader_epoch: int
    partition_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    size_bytes: int
    segments: int
    isr: list[int]  # on a follower: as the controller pushed it
    joining: list[int]  # proposed for the ISR, not accepted yet
    min_isr: int
    lag_max_ms: int  # replica.lag.time.max.ms: a follower that lags for so long leaves the ISR
    is_isr_change_in_flight: bool
    replica_ids: list[int]  # in order of assignment
    replicas: list[Replica]  # on the leader; empty on a follower
    fetch_lag: int | None  # on a follower: records behind the leader's high watermark, as of the last fetch


class Fetcher(TypedDict):
    """A thread that copies partitions from a leader broker."""

    name: str
    leader: int
    is_alive: bool
    partitions: int
    failed: int  # partitions that it no longer fetches because of an error
    max_lag: int
    fetches: int  # since it started
    bytes_in: int
    per_second: float  # fetches, over the last minute


class Member(TypedDict):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int  # member epoch; a classic group's generation
    state: str  # of a classic group: "joining", "syncing", "member"; of a consumer group: Kafka's word
    tasks: NotRequired[str]  # of a streams group: how many in each role, in words


class Group(TypedDict):
    """A group that this broker coordinates."""

    group_id: str
    type: Literal["classic", "consumer", "share", "streams"]
    state: str  # Kafka's word
    protocol_type: str
    protocol: str  # assignor
    generation: int  # of a consumer group: its epoch
    topology_epoch: NotRequired[int]  # of a streams group; -1: it has no topology
    leader: str  # member id; "" where there is none
    coordinator_partition: int  # of __consumer_offsets
    since_ms: int  # time in this state; -1: unknown
    members: Listed  # of Member
    sentence: str  # its state in words


class Transaction(TypedDict):
    """A transactional id with an open transaction that this broker coordinates."""

    transactional_id: str
    state: str  # Kafka's word
    producer_id: int
    producer_epoch: int
    age_ms: int  # since its first partition; -1: unknown
    timeout_ms: int
    partitions: list[str]


class Held(TypedDict):
    """Neighbouring records that a member of a share group holds."""

    member_id: str
    first_offset: int
    last_offset: int  # inclusive
    delivery_count: int  # how often they were delivered, this time included
    left_ms: int  # until the acquisition lock runs out


class SharePartition(TypedDict):
    """A partition that this broker delivers to a share group."""

    group_id: str
    topic: str
    partition: int
    is_loading: bool  # its state is not known yet
    start_offset: int  # everything before it is done
    end_offset: int  # the last offset that was delivered
    in_flight: int  # offsets from start to end, if any is in flight
    held: Listed  # of Held
    sentence: str  # its state in words


class PushingClient(TypedDict):
    """A client that pushes its metrics to this broker (KIP-714). Its own numbers are as of its last push."""

    client_id: str
    client_instance_id: str
    kind: str  # "producer" or "consumer"; "": another one, or its subscription does not show it
    software: str  # name and version
    address: str  # host:port
    interval_ms: int
    pushed_ms: int  # ms ago
    series: int
    latency_avg_ms: float | None  # of its requests, as it measures it; None: it does not push that
    latency_max_ms: float | None
    queue_avg_ms: float | None  # how long a producer's records wait before they are sent
    broker_api: str  # the broker's requests to compare with; "" where kind is
    broker_median_ms: float | None  # how long the recent ones took here, of all clients; None: there were none


class FailedShape(TypedDict):
    """A response with errors."""

    api: str
    version: int
    correlation_id: int
    client_id: str | None
    connection: str
    errors: list[str]


class Requests(TypedDict):
    """Requests that are done."""

    finished: dict[str, int]  # since the start, by API; a Fetch is FetchConsumer or FetchFollower
    spent_ms: dict[str, dict[str, float]]  # time of finished requests since the start, by API and station
    slow: list[RequestShape]  # the slowest of the last minutes, slowest first
    recent: list[RequestShape]  # the content of the log's ring, newest first
    errors: list[FailedShape]  # newest first


class BrokerLive(TypedDict):
    """A broker's answer."""

    schema: int
    at_ms: int  # wall time
    clock_offset_ms: int  # by how much the time of groups and data is ahead; 0 unless it was moved on purpose
    node: Node
    acceptors: list[Acceptor]
    processors: list[Processor]
    throttled: Listed  # of Throttled: those that wait longest first
    request_queue: RequestQueue
    handlers: Handlers
    purgatories: list[Purgatory]
    elsewhere: Listed  # of Waiting: parked outside purgatories, for a coordinator or another broker
    requests: Requests
    partitions: Listed  # of Partition: under-replicated ones first, then by name, internal topics last
    fetchers: list[Fetcher]
    groups: Listed  # of Group
    transactions: Listed  # of Transaction
    shares: Listed  # of SharePartition
    clients: Listed  # of PushingClient


class Event(TypedDict):
    """A waiting event of the controller."""

    name: str
    age_ms: float


class EventQueue(TypedDict):
    """The controller's event thread and its queue."""

    total: int
    items: list[Event]  # oldest first
    idle: float  # 0 to 1
    processed: int  # since the start
    deciding: str | None  # the event that it processes now


class RegisteredBroker(TypedDict):
    """A registered broker, and the changes to be pushed to it."""

    id: int
    epoch: int
    address: str  # host:port of its first listener
    rack: str | None
    state: Literal["active", "fenced", "shutting_down"]
    last_heartbeat_ms: int  # ms ago
    push_queue: int  # changes waiting to be pushed
    push_age_ms: float  # age of the oldest of them; 0: there is none
    push_failures: int  # in a row
    metadata_lag: int  # records of the metadata log that it has not acknowledged
    leads: int  # partitions
    replicas: int  # partitions


class QuorumMember(TypedDict):
    """A controller of the quorum. Only the leader knows the numbers of the others: -1 elsewhere."""

    id: int
    role: Literal["leader", "voter", "observer"]
    address: str  # host:port of the controllers' listener; "" if it is not known
    end_offset: int
    behind: int  # records that the leader has and it does not; -1: not known
    fetched_ms: int  # since its last fetch
    vote: Literal["granted", "rejected"] | None  # in the election that is under way, for this controller


class QuorumChange(TypedDict):
    """A role that this controller took, and why."""

    at_ms: int
    role: str
    epoch: int
    leader: int | None
    reason: str


class QuorumLive(TypedDict):
    """The quorum as this controller sees it."""

    role: str  # leader, follower, candidate, prospective, unattached, resigned
    epoch: int
    leader: int | None
    voted: int | None  # in this epoch
    high_watermark: int
    end_offset: int
    members: list[QuorumMember]
    changes: list[QuorumChange]  # the newest first; a few dozen are kept


class ControllerLive(TypedDict):
    """The controller's answer. Its network layer has the same fields as a broker's."""

    schema: int
    at_ms: int
    clock_offset_ms: int  # by how much the time of delegation tokens is ahead; 0 unless it was moved on purpose
    node: Node
    acceptors: list[Acceptor]
    processors: list[Processor]
    throttled: Listed  # of Throttled: those that wait longest first
    request_queue: RequestQueue
    handlers: Handlers
    elsewhere: Listed
    requests: Requests
    events: EventQueue
    brokers: list[RegisteredBroker]
    metadata: dict[str, int]  # offset, topics, partitions, offline, under_replicated
    quorum: QuorumLive
