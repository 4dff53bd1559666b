"""The dashboard *Topics*: the traffic of each topic, and its size on disk."""

from __future__ import annotations

from typing import Final

from dashboards.panels import BROKER, BROKERS, CLUSTER, RATE, Board, Panel, Query, Row, Variable, number

TOPIC: Final = f'{BROKER}, topic=~"$topic"'
_METRICS = "kafka_server_brokertopicmetrics"


def by_topic(name: str) -> tuple[Query, ...]:
    """Return the query of a rate, with a line for each topic."""
    return ((f"sum by (topic) (rate({_METRICS}_{name}_total{{{TOPIC}}}{RATE}))", "{{topic}}"),)


def _quantiles(histogram: str) -> tuple[Query, ...]:
    return tuple(
        (f"histogram_quantile({share}, sum by (le) (rate({histogram}_bucket{{{BROKER}}}{RATE})))", name)
        for share, name in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
    )


ROWS: Final = (
    Row(
        "At a glance",
        (
            number(
                "Topics", "The selected topics.", f"count(count by (topic) (kafka_log_log_size{{{TOPIC}}}))", span=6
            ),
            number("On disk", "Size of all replicas.", f"sum(kafka_log_log_size{{{TOPIC}}})", unit="bytes", span=6),
            number(
                "Messages in",
                "Per second.",
                f"sum(rate({_METRICS}_messagesin_total{{{TOPIC}}}{RATE}))",
                unit="cps",
                span=6,
            ),
            number(
                "Bytes in", "Per second.", f"sum(rate({_METRICS}_bytesin_total{{{TOPIC}}}{RATE}))", unit="Bps", span=6
            ),
        ),
    ),
    Row(
        "In and out",
        (
            Panel("Messages in", "Records appended by producers.", by_topic("messagesin"), "cps", stacked=True),
            Panel("Bytes in", "From producers.", by_topic("bytesin"), "Bps", stacked=True),
            Panel("Bytes out", "To consumers.", by_topic("bytesout"), "Bps", stacked=True),
            Panel(
                "Produce requests",
                "Counted for each partition of a request.",
                by_topic("totalproducerequests"),
                "reqps",
            ),
            Panel(
                "Fetch requests",
                "Counted for each partition that is read.",
                by_topic("totalfetchrequests"),
                "reqps",
                span=24,
            ),
        ),
    ),
    Row(
        "Batches of producers",
        (
            Panel("Size of batches", "As stored.", _quantiles("barnabas_produce_batch_bytes"), "bytes"),
            Panel(
                "Records in a batch", "Small batches need many requests.", _quantiles("barnabas_produce_batch_records")
            ),
            Panel(
                "Size of records",
                "The mean of each batch, as compressed by the producer.",
                _quantiles("barnabas_produce_record_bytes"),
                "bytes",
                span=24,
            ),
        ),
    ),
    Row(
        "On disk",
        (
            Panel(
                "Size",
                "All replicas of all partitions.",
                ((f"sum by (topic) (kafka_log_log_size{{{TOPIC}}})", "{{topic}}"),),
                "bytes",
                stacked=True,
            ),
            Panel(
                "Segments",
                "Segments of the logs.",
                ((f"sum by (topic) (kafka_log_log_numlogsegments{{{TOPIC}}})", "{{topic}}"),),
            ),
            Panel(
                "Records kept",
                "Difference between the last and the first offset, of the longest replica of each partition.",
                (
                    (
                        f"sum by (topic) (max by (topic, partition) (kafka_log_log_logendoffset{{{TOPIC}}})"
                        f" - max by (topic, partition) (kafka_log_log_logstartoffset{{{TOPIC}}}))",
                        "{{topic}}",
                    ),
                ),
            ),
            Panel(
                "Size of the largest partitions",
                "The ten largest.",
                (
                    (
                        f"topk(10, max by (topic, partition) (kafka_log_log_size{{{TOPIC}}}))",
                        "{{topic}}-{{partition}}",
                    ),
                ),
                "bytes",
            ),
        ),
    ),
    Row(
        "Rejected",
        (
            Panel(
                "Rejected batches",
                "By reason: too large (in bytes), wrong checksum, invalid offsets or sequence, or failed otherwise.",
                tuple(
                    (
                        f'sum(rate({_METRICS}_{name}_total{{{BROKER}, topic=""}}{RATE}))',
                        legend,
                    )
                    for name, legend in (
                        ("bytesrejected", "bytes too large"),
                        ("invalidmessagecrcrecords", "wrong checksum"),
                        ("invalidoffsetorsequencerecords", "invalid offsets or sequence"),
                        ("failedproducerequests", "failed produces"),
                        ("failedfetchrequests", "failed fetches"),
                    )
                ),
                "cps",
                span=24,
            ),
        ),
    ),
)

BOARD: Final = Board(
    "topics",
    "Topics",
    "The traffic of each topic, and its size on disk.",
    ROWS,
    (BROKERS, Variable("topic", "Topic", f'label_values(kafka_log_log_size{{job="kafka-broker", {CLUSTER}}}, topic)')),
)
