"""The table of measurements, in the order in which they run.

Starts, and the load right after a start, are measured cold. In the measurements of consumer groups, only the client
needs a warm-up, and it does that itself.
"""

from __future__ import annotations

from benchmarks.bench import MANY, ONE, Measurement
from benchmarks.workloads import first_load, groups, latency, partitions, requests, starts, throughput, transactions

MEASUREMENTS = {
    "produce-1k": Measurement(throughput.produce_and_consume_1k, "produce 1 KiB"),
    "produce-100": Measurement(throughput.produce_100, "produce 100 B"),
    "consume-4": Measurement(throughput.consume_by_four, "consume by 4 readers"),
    "small-32x2": requests.small_row("produce", MANY),
    "small-1x1": requests.small_row("produce", ONE),
    "metadata-32x2": requests.small_row("metadata", MANY),
    "metadata-1x1": requests.small_row("metadata", ONE),
    "end-to-end": Measurement(latency.end_to_end, "end to end, p50"),
    "idle-connections": Measurement(
        requests.beside_idle_connections, "no idle connections, rate", own_limit=requests.held
    ),
    "partitions": Measurement(partitions.many_partitions, "1,000 partitions, produce 1 KiB"),
    "groups": Measurement(groups.classic),
    "groups-848": Measurement(groups.kip_848),
    "start": Measurement(starts.start_one, starts_it=True),
    "start-3": Measurement(starts.start_three, brokers=3, starts_it=True),
    "restart": Measurement(starts.restart, starts_it=True),
    "first-load": Measurement(first_load.one_broker, starts_it=True),
    "first-load-3": Measurement(first_load.three_brokers, brokers=3, starts_it=True),
    "acks-all": Measurement(throughput.produce_to_all, "produce acks=all, RF 3", brokers=3),
    "transactions": Measurement(transactions.transactions, transactions.label(10), brokers=3),
}
