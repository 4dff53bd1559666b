"""The dashboard *Replication*: in-sync replicas, followers, and elections."""

from __future__ import annotations

from typing import Final

from dashboards.panels import BROKER, CONTROLLER, RATE, Board, Panel, Row, by_broker, number

_REPLICAS = "kafka_server_replicamanager"
_FETCHERS = "kafka_server_replicafetchermanager"
_METRICS = "kafka_server_brokertopicmetrics"

ROWS: Final = (
    Row(
        "At a glance",
        (
            number(
                "Under-replicated",
                "Partitions whose ISR is smaller than their replica list.",
                f"sum({_REPLICAS}_underreplicatedpartitions{{{BROKER}}})",
                good_below=1,
            ),
            number(
                "Under min ISR",
                "Partitions that reject acks=all because they lack in-sync replicas.",
                f"sum({_REPLICAS}_underminisrpartitioncount{{{BROKER}}})",
                good_below=1,
            ),
            number(
                "At min ISR",
                "Partitions that will reject acks=all if one more replica leaves the ISR.",
                f"sum({_REPLICAS}_atminisrpartitioncount{{{BROKER}}})",
            ),
            number(
                "Offline replicas",
                "Replicas in failed log directories.",
                f"sum({_REPLICAS}_offlinereplicacount{{{BROKER}}})",
                good_below=1,
            ),
            number(
                "Being reassigned",
                "Partitions that are being reassigned.",
                f"sum({_REPLICAS}_reassigningpartitions{{{BROKER}}})",
            ),
            number(
                "Unclean elections",
                "Leaders elected from outside the ISR in the last hour. Records may be lost.",
                f"sum(increase(kafka_controller_controllerstats_uncleanleaderelections_total{{{CONTROLLER}}}[1h]))",
                good_below=1,
            ),
        ),
    ),
    Row(
        "In-sync replicas",
        (
            Panel(
                "Under-replicated partitions",
                "By the broker that leads them. If all brokers but one have some, that one is down.",
                ((f"{_REPLICAS}_underreplicatedpartitions{{{BROKER}}}", "{{instance}}"),),
                stacked=True,
            ),
            Panel(
                "Changes of ISRs",
                "Per second. Shrinks while no broker stops mean that a follower cannot keep up.",
                (
                    (f"sum(rate({_REPLICAS}_isrshrinks_total{{{BROKER}}}{RATE}))", "shrinks"),
                    (f"sum(rate({_REPLICAS}_isrexpands_total{{{BROKER}}}{RATE}))", "expands"),
                    (f"sum(rate({_REPLICAS}_failedisrupdates_total{{{BROKER}}}{RATE}))", "rejected by the controller"),
                ),
                "cps",
            ),
            Panel(
                "Replicas out of sync",
                "By topic: replicas minus in-sync replicas.",
                (
                    (
                        f"sum by (topic) (kafka_cluster_partition_replicascount{{{BROKER}}}"
                        f" - kafka_cluster_partition_insyncreplicascount{{{BROKER}}})",
                        "{{topic}}",
                    ),
                ),
                span=24,
            ),
        ),
    ),
    Row(
        "Followers",
        (
            Panel(
                "Lag of followers",
                "Records between the slowest partition of each broker's fetchers and its leader.",
                ((f"{_FETCHERS}_maxlag{{{BROKER}}}", "{{instance}}"),),
            ),
            Panel(
                "Lag of the slowest partitions",
                "The ten partitions with the largest lag.",
                (
                    (
                        f"topk(10, kafka_server_fetcherlagmetrics_consumerlag{{{BROKER}}})",
                        "{{instance}} {{topic}}-{{partition}}",
                    ),
                ),
            ),
            Panel(
                "Bytes fetched from leaders",
                "By follower.",
                (by_broker(f"{_METRICS}_replicationbytesin_total", ', topic=""'),),
                "Bps",
            ),
            Panel(
                "Bytes sent to followers",
                "By leader.",
                (by_broker(f"{_METRICS}_replicationbytesout_total", ', topic=""'),),
                "Bps",
            ),
            Panel(
                "Fetches",
                "Sent per second by each fetcher.",
                (
                    (
                        "sum by (instance, brokerport) "
                        f"(rate(kafka_server_fetcherstats_requests_total{{{BROKER}}}{RATE}))",
                        "{{instance}} from port {{brokerport}}",
                    ),
                ),
                "reqps",
            ),
            Panel(
                "Failed fetchers",
                "Dead threads, and partitions that are no longer fetched because of an error.",
                (
                    (f"sum by (instance) ({_FETCHERS}_deadthreadcount{{{BROKER}}})", "{{instance}} dead threads"),
                    (
                        f"sum by (instance) ({_FETCHERS}_failedpartitionscount{{{BROKER}}})",
                        "{{instance}} failed partitions",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Waiting for replicas",
        (
            Panel(
                "Waiting produce requests",
                "Requests with acks=all in the produce purgatory.",
                (
                    (
                        "kafka_server_delayedoperationpurgatory_numdelayedoperations"
                        f'{{{BROKER}, delayedOperation="Produce"}}',
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "Wait of produce requests for replicas",
                "The 99th percentile.",
                (
                    (
                        "histogram_quantile(0.99, sum by (le, instance) "
                        "(rate(kafka_network_requestmetrics_request_remote_time_seconds_bucket"
                        f'{{{BROKER}, request="Produce"}}{RATE})))',
                        "{{instance}}",
                    ),
                ),
                "s",
            ),
        ),
    ),
)

BOARD: Final = Board("replication", "Replication", "In-sync replicas, followers, and elections.", ROWS)
