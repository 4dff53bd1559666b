"""The dashboard *Cluster*: brokers, partitions, the controller, and the resources of each process."""

from __future__ import annotations

from typing import Final

from dashboards.panels import BROKER, CONTROLLER, PROCESS, RATE, Board, Panel, Row, by_broker, number

_CONTROLLER = "kafka_controller_kafkacontroller"
_RAFT = "kafka_server_raftmetrics"
_EVENTS = "kafka_controller_controllereventmanager"

ROWS: Final = (
    Row(
        "Health",
        (
            number(
                "Active brokers", "Registered and not fenced.", f"max({_CONTROLLER}_activebrokercount{{{CONTROLLER}}})"
            ),
            number(
                "Fenced brokers",
                "Registered, but not alive or not ready yet.",
                f"max({_CONTROLLER}_fencedbrokercount{{{CONTROLLER}}})",
                good_below=1,
            ),
            number(
                "Active controller", "1 if there is one.", f"sum({_CONTROLLER}_activecontrollercount{{{CONTROLLER}}})"
            ),
            number(
                "Offline partitions",
                "Partitions without a leader. They can be neither written nor read.",
                f"max({_CONTROLLER}_offlinepartitionscount{{{CONTROLLER}}})",
                good_below=1,
            ),
            number(
                "Not led by the preferred replica",
                "Partitions whose first replica does not lead. auto.leader.rebalance.enable moves them back.",
                f"max({_CONTROLLER}_preferredreplicaimbalancecount{{{CONTROLLER}}})",
            ),
            number(
                "Offline log directories",
                "Log directories with a failed disk.",
                f"sum(kafka_log_logmanager_offlinelogdirectorycount{{{BROKER}}})",
                good_below=1,
            ),
        ),
    ),
    Row(
        "Size",
        (
            number("Topics", "Of the whole cluster.", f"max({_CONTROLLER}_globaltopiccount{{{CONTROLLER}}})"),
            number("Partitions", "Of the whole cluster.", f"max({_CONTROLLER}_globalpartitioncount{{{CONTROLLER}}})"),
            number("Replicas", "Of all partitions.", f"sum(kafka_server_replicamanager_partitioncount{{{BROKER}}})"),
            number("On disk", "All logs of all brokers.", f"sum(kafka_log_log_size{{{BROKER}}})", unit="bytes"),
            number(
                "Connections",
                "Open connections.",
                f"sum(kafka_server_socket_server_metrics_connection_count{{{BROKER}}})",
            ),
            number(
                "Groups",
                "Consumer groups of all coordinators.",
                f"sum(kafka_coordinator_group_groupmetadatamanager_numgroups{{{BROKER}}})",
            ),
        ),
    ),
    Row(
        "Brokers",
        (
            Panel(
                "State of brokers",
                "1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down.",
                ((f"kafka_server_kafkaserver_brokerstate{{{BROKER}}}", "{{instance}}"),),
            ),
            Panel(
                "Leaders",
                "Partitions that each broker leads. Even numbers spread the load.",
                ((f"kafka_server_replicamanager_leadercount{{{BROKER}}}", "{{instance}}"),),
                stacked=True,
            ),
            Panel(
                "Bytes in",
                "From producers.",
                (by_broker("kafka_server_brokertopicmetrics_bytesin_total", ', topic=""'),),
                "Bps",
            ),
            Panel(
                "Bytes out",
                "To consumers.",
                (by_broker("kafka_server_brokertopicmetrics_bytesout_total", ', topic=""'),),
                "Bps",
            ),
        ),
    ),
    Row(
        "Clients",
        (
            Panel(
                "Requests by client",
                "Requests per second of the ten busiest client ids.",
                (
                    (
                        f"topk(10, sum by (client_id) (rate(barnabas_client_requests_total{{{BROKER}}}{RATE})))",
                        "{{client_id}}",
                    ),
                ),
                "reqps",
            ),
            Panel(
                "Time of request threads by client",
                "Seconds of handlers and processors per second. 1 is a whole thread.",
                (
                    (
                        f"topk(10, sum by (client_id) (rate(barnabas_client_request_seconds_total{{{BROKER}}}{RATE})))",
                        "{{client_id}}",
                    ),
                ),
                "percentunit",
            ),
            Panel(
                "Connections by client software",
                "The software names and versions that clients announce.",
                (
                    (
                        "sum by (client_software_name, client_software_version) "
                        f"(kafka_server_socket_server_metrics_connections{{{BROKER}}})",
                        "{{client_software_name}} {{client_software_version}}",
                    ),
                ),
                stacked=True,
                span=24,
            ),
        ),
    ),
    Row(
        "Controller",
        (
            Panel(
                "Time of events",
                "The 99th percentile of the last minutes: the wait in the queue, and the processing.",
                (
                    (f'{_EVENTS}_eventqueuetimems{{{CONTROLLER}, quantile="0.99"}}', "in the queue"),
                    (f'{_EVENTS}_eventqueueprocessingtimems{{{CONTROLLER}, quantile="0.99"}}', "processing"),
                ),
                "ms",
            ),
            Panel(
                "Time from a change to its push",
                "Mean time from the oldest change in a push to the broker's answer.",
                (
                    (
                        f"sum by (broker) (rate(kafka_controller_push_time_seconds_sum{{{CONTROLLER}}}{RATE})) / "
                        f"(sum by (broker) (rate(kafka_controller_push_time_seconds_count{{{CONTROLLER}}}{RATE})) > 0)"
                        f" or 0 * sum by (broker) (kafka_controller_push_time_seconds_count{{{CONTROLLER}}})",
                        "to broker {{broker}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Changes waiting to be pushed",
                "For a broker that is slow or down.",
                ((f"kafka_controller_controllerchannelmanager_queuesize{{{CONTROLLER}}}", "to broker {{broker}}"),),
            ),
            Panel(
                "Metadata records",
                "Appended per second.",
                ((f"rate(kafka_server_raftmetrics_append_records_total{{{CONTROLLER}}}{RATE})", "appended"),),
                "cps",
            ),
        ),
    ),
    Row(
        "Quorum",
        (
            number(
                "Leader", "Id of the active controller; -1 without one.", f"max({_RAFT}_current_leader{{{CONTROLLER}}})"
            ),
            number("Voters", "Controllers that elect.", f"max({_RAFT}_number_of_voters{{{CONTROLLER}}})"),
            number("Epoch", "Each election raises it.", f"max({_RAFT}_current_epoch{{{CONTROLLER}}})"),
            Panel(
                "Roles",
                "The role of each controller: leader, follower, candidate and so on.",
                ((f"{_RAFT}_current_state{{{CONTROLLER}}}", "{{instance}} {{current_state}}"),),
                stacked=True,
            ),
            Panel(
                "Epoch",
                "It grows with each election. A steep line means that leaders do not last.",
                ((f"{_RAFT}_current_epoch{{{CONTROLLER}}}", "{{instance}}"),),
            ),
            Panel(
                "Behind the leader",
                "Metadata records that are committed and that this controller does not have.",
                (
                    (
                        f"clamp_min(scalar(max({_RAFT}_high_watermark{{{CONTROLLER}}}))"
                        f" - {_RAFT}_log_end_offset{{{CONTROLLER}}}, 0)",
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "Time to commit",
                "From a group of appends to its commit by a majority: the longest of the last minute.",
                (
                    (
                        f"{_RAFT}_commit_latency_max{{{CONTROLLER}}} >= 0 or 0 * {_RAFT}_current_epoch{{{CONTROLLER}}}",
                        "{{instance}}",
                    ),
                ),
                "ms",
            ),
            Panel(
                "Time of elections",
                "From a candidacy until a leader is known: the longest of the last minute.",
                (
                    (
                        f"{_RAFT}_election_latency_max{{{CONTROLLER}}} >= 0"
                        f" or 0 * {_RAFT}_current_epoch{{{CONTROLLER}}}",
                        "{{instance}}",
                    ),
                ),
                "ms",
            ),
            Panel(
                "Idle share of the raft thread",
                "Of a single controller: of its event thread.",
                ((f"{_RAFT}_poll_idle_ratio_avg{{{CONTROLLER}}}", "{{instance}}"),),
                "percentunit",
                is_share=True,
            ),
        ),
    ),
    Row(
        "Processes",
        (
            Panel("CPU", "Cores in use.", ((f"rate(process_cpu_seconds_total{{{PROCESS}}}{RATE})", "{{instance}}"),)),
            Panel(
                "Memory",
                "Resident memory.",
                ((f"process_resident_memory_bytes{{{PROCESS}}}", "{{instance}}"),),
                "bytes",
            ),
            Panel(
                "Disk",
                "Bytes written to and read from disks, without the page cache.",
                (
                    (
                        f"rate(kafka_server_kafkaserver_linux_disk_write_bytes{{{BROKER}}}{RATE})",
                        "{{instance}} written",
                    ),
                    (f"rate(kafka_server_kafkaserver_linux_disk_read_bytes{{{BROKER}}}{RATE})", "{{instance}} read"),
                ),
                "Bps",
            ),
            Panel(
                "Open files",
                "Share of the allowed file descriptors.",
                ((f"process_open_fds{{{PROCESS}}} / process_max_fds{{{PROCESS}}}", "{{instance}}"),),
                "percentunit",
                is_share=True,
            ),
            Panel(
                "Free disk",
                "Free share of each log directory's file system.",
                (
                    (
                        f"barnabas_log_directory_free_bytes{{{BROKER}}}"
                        f" / barnabas_log_directory_size_bytes{{{BROKER}}}",
                        "{{instance}} {{logDirectory}}",
                    ),
                ),
                "percentunit",
                span=24,
                is_share=True,
            ),
        ),
    ),
)

BOARD: Final = Board(
    "cluster", "Cluster", "Brokers, partitions, the controller, and the resources of each process.", ROWS
)
