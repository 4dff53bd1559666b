"""The table of measurements, in the order in which they run.

Starts, and the load right after a start, are measured cold. In the measurements of groups, only the client
needs a warm-up, and it does that itself.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.bench import MANY, ONE, Measurement
from benchmarks.systems import Kind
from benchmarks.workloads import (
    acls,
    first_load,
    groups,
    latency,
    partitions,
    requests,
    shares,
    starts,
    throughput,
    transactions,
)

THREE, SECURED = Kind(brokers=3), Kind(is_secured=True)
MEASUREMENTS = {
    "produce-1k": Measurement(throughput.produce_and_consume_1k(), "produce 1 KiB", has_peers=True),
    "produce-100": Measurement(throughput.produce_100, "produce 100 B"),
    "consume-4": Measurement(throughput.consume_by_four, "consume by 4 readers"),
    "small-32x2": replace(requests.small_row("produce", MANY), has_peers=True),
    "small-1x1": replace(requests.small_row("produce", ONE), has_peers=True),
    "metadata-32x2": requests.small_row("metadata", MANY),
    "metadata-1x1": requests.small_row("metadata", ONE),
    "end-to-end": Measurement(latency.end_to_end, "end to end, p50"),
    "idle-connections": Measurement(
        requests.beside_idle_connections, "no idle connections, rate", own_limit=requests.held
    ),
    "partitions": Measurement(partitions.many_partitions, "1,000 partitions, produce 1 KiB"),
    "groups": Measurement(groups.classic),
    "groups-848": Measurement(groups.kip_848),
    "shares": Measurement(shares.share_consumers),
    "produce-1k-secure": Measurement(
        throughput.produce_and_consume_1k("secure "), "secure produce 1 KiB", kind=SECURED
    ),
    "start": Measurement(starts.start_one, starts_it=True, has_peers=True),
    "start-3": Measurement(starts.start_three, kind=THREE, starts_it=True),
    "restart": Measurement(starts.restart, starts_it=True),
    "first-load": Measurement(first_load.one_broker(first_load.NAME), starts_it=True, has_peers=True),
    "first-load-secure": Measurement(first_load.one_broker(first_load.SECURE_NAME), kind=SECURED, starts_it=True),
    "first-load-3": Measurement(first_load.three_brokers, kind=THREE, starts_it=True),
    "acks-all": Measurement(throughput.produce_to_all, "produce acks=all, RF 3", kind=THREE),
    "acls-32x2": Measurement(acls.small_produce, starts_it=True, is_ours_only=True),
    "acls-produce-1k": Measurement(acls.produce_1k, starts_it=True, is_ours_only=True),
    "transactions": Measurement(transactions.transactions, transactions.label(10), kind=THREE),
}
