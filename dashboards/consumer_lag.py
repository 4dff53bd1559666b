"""The dashboard *Consumer lag*: the lag of groups, in records and in time."""

from __future__ import annotations

from typing import Final

from dashboards.panels import BROKER, BROKERS, CLUSTER, RATE, Board, Panel, Row, Variable, number

GROUP: Final = f'job="kafka-broker", {CLUSTER}, consumergroup=~"$group"'
_COORDINATOR = "kafka_coordinator_group_groupmetadatamanager"

ROWS: Final = (
    Row(
        "At a glance",
        (
            number(
                "Lag", "Records that the groups have not committed.", f"sum(kafka_consumergroup_lag{{{GROUP}}})", span=6
            ),
            number(
                "Longest lag in time",
                "Time since the last committed record was the newest of its partition.",
                f"max(kafka_consumer_lag_millis{{{GROUP}}})",
                unit="ms",
                span=6,
            ),
            number("Members", "Of the chosen groups.", f"sum(kafka_consumergroup_members{{{GROUP}}})", span=6),
            number(
                "Age of these numbers",
                "They are updated every five seconds.",
                f'max(barnabas_lag_age_seconds{{job="kafka-broker", {CLUSTER}}})',
                unit="s",
                span=6,
            ),
        ),
    ),
    Row(
        "Groups",
        (
            Panel(
                "Lag",
                "In records, by group.",
                ((f"sum by (consumergroup) (kafka_consumergroup_lag_sum{{{GROUP}}})", "{{consumergroup}}"),),
            ),
            Panel(
                "Lag in time",
                "Of the slowest partition of each group.",
                ((f"max by (consumergroup) (kafka_consumer_lag_millis{{{GROUP}}})", "{{consumergroup}}"),),
                "ms",
            ),
            Panel(
                "Records consumed",
                "Per second, by the committed offsets.",
                (
                    (
                        f"sum by (consumergroup) (deriv(kafka_consumergroup_current_offset_sum{{{GROUP}}}[1m]))",
                        "{{consumergroup}}",
                    ),
                ),
                "cps",
            ),
            Panel(
                "Members",
                "A change is a rebalance.",
                ((f"sum by (consumergroup) (kafka_consumergroup_members{{{GROUP}}})", "{{consumergroup}}"),),
            ),
        ),
    ),
    Row(
        "Partitions",
        (
            Panel(
                "Partitions that lag most",
                "The ten partitions with the largest lag.",
                (
                    (
                        f"topk(10, kafka_consumergroup_lag{{{GROUP}}})",
                        "{{consumergroup}} {{topic}}-{{partition}}",
                    ),
                ),
                span=24,
            ),
        ),
    ),
    Row(
        "Coordinators",
        (
            Panel(
                "Groups by state",
                "Of the classic protocol.",
                tuple(
                    (f"sum({_COORDINATOR}_numgroups{state}{{{BROKER}}})", legend)
                    for state, legend in (
                        ("stable", "stable"),
                        ("empty", "empty"),
                        ("preparingrebalance", "preparing a rebalance"),
                        ("completingrebalance", "completing a rebalance"),
                    )
                ),
                stacked=True,
            ),
            Panel(
                "Offsets committed",
                "Per second, by coordinator.",
                (
                    (
                        "sum by (instance) "
                        f"(rate(kafka_server_group_coordinator_metrics_offset_commit_total{{{BROKER}}}{RATE}))",
                        "{{instance}}",
                    ),
                ),
                "cps",
            ),
            Panel(
                "Rebalances completed",
                "Per second, by coordinator.",
                (
                    (
                        "sum by (instance) (rate(kafka_server_group_coordinator_metrics_group_completed_rebalance_total"
                        f"{{{BROKER}}}{RATE}))",
                        "{{instance}}",
                    ),
                ),
                "cps",
                span=24,
            ),
        ),
    ),
)

BOARD: Final = Board(
    "consumer-lag",
    "Consumer lag",
    "The lag of groups, in records and in time. One broker reports it for the whole cluster.",
    ROWS,
    (
        BROKERS,
        Variable(
            "group",
            "Group",
            f'label_values(kafka_consumergroup_members{{job="kafka-broker", {CLUSTER}}}, consumergroup)',
        ),
    ),
)
