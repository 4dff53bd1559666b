"""The dashboard *Request pipeline*: the path of a request through the brokers, a row for each stage, and its times."""

from __future__ import annotations

from typing import Final

from dashboards.panels import BROKER, CONTROLLER, RATE, Board, Panel, Query, Row, by_broker, number

STAGES: Final = (  # in the order that a request passes them
    ("request queue", "requestqueuetimems"),
    ("local (handler)", "localtimems"),
    ("remote (purgatory)", "remotetimems"),
    ("throttle", "throttletimems"),
    ("response queue", "responsequeuetimems"),
    ("response send", "responsesendtimems"),
)


def stage_times(request: str) -> tuple[Query, ...]:
    """Return queries of the mean time that a request spends in each stage. Stacked, they are its total time."""
    return tuple(
        (
            f'sum(rate(kafka_network_requestmetrics_{metric}_sum{{{BROKER}, request="{request}"}}{RATE})) / '
            f'sum(rate(kafka_network_requestmetrics_{metric}_count{{{BROKER}, request="{request}"}}{RATE}))',
            stage,
        )
        for stage, metric in STAGES
    )


def time_split(request: str, description: str) -> Panel:
    """Return a panel with the mean times of a request's stages."""
    return Panel(f"{request}: where the time goes", description, stage_times(request), unit="ms", stacked=True)


ROWS: Final = (
    Row(
        "At a glance",
        (
            number(
                "Active brokers",
                "Brokers that the controller counts as alive.",
                f"max(kafka_controller_kafkacontroller_activebrokercount{{{CONTROLLER}}})",
            ),
            number(
                "Under-replicated partitions",
                "Partitions whose ISR is smaller than their replica list.",
                f"sum(kafka_server_replicamanager_underreplicatedpartitions{{{BROKER}}})",
                good_below=1,
            ),
            number(
                "Under min ISR",
                "Partitions that reject acks=all because they lack in-sync replicas.",
                f"sum(kafka_server_replicamanager_underminisrpartitioncount{{{BROKER}}})",
                good_below=1,
            ),
            number(
                "Offline partitions",
                "Partitions without a leader.",
                f"max(kafka_controller_kafkacontroller_offlinepartitionscount{{{CONTROLLER}}})",
                good_below=1,
            ),
            number(
                "Messages in",
                "Records appended by producers, per second.",
                f'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{{{BROKER}, topic=""}}{RATE}))',
                unit="cps",
            ),
            number(
                "Memory",
                "Resident memory of all brokers.",
                f"sum(process_resident_memory_bytes{{{BROKER}}})",
                unit="bytes",
            ),
        ),
    ),
    Row(
        "Bytes",
        (
            Panel(
                "Bytes in",
                "From producers.",
                (
                    (
                        f'sum by (instance) (rate(kafka_server_brokertopicmetrics_bytesin_total{{{BROKER}, topic=""}}'
                        f"{RATE}))",
                        "{{instance}}",
                    ),
                ),
                "Bps",
            ),
            Panel(
                "Bytes out",
                "To consumers.",
                (
                    (
                        f'sum by (instance) (rate(kafka_server_brokertopicmetrics_bytesout_total{{{BROKER}, topic=""}}'
                        f"{RATE}))",
                        "{{instance}}",
                    ),
                ),
                "Bps",
            ),
        ),
    ),
    Row(
        "1. Acceptors",
        (
            Panel(
                "Connections accepted",
                "Per second. A new connection for each request costs more than the request.",
                (by_broker("kafka_server_socket_server_metrics_connection_creation_total"),),
                "cps",
            ),
            Panel(
                "Share of time that acceptors are blocked",
                "They are blocked while all inboxes of the processors are full, or a quota holds connections back.",
                (
                    (
                        f"max by (instance, listener) (kafka_network_acceptor_acceptorblocked_percent{{{BROKER}}})",
                        "{{instance}} {{listener}}",
                    ),
                ),
                "percentunit",
                is_share=True,
            ),
            Panel(
                "Connections in inboxes",
                "Accepted connections that wait for a processor.",
                (
                    (f"sum by (instance) (kafka_network_processor_inboxsize{{{BROKER}}})", "{{instance}}"),
                    (f"max(kafka_network_processor_inboxcapacity{{{BROKER}}})", "capacity of one"),
                ),
                span=24,
            ),
        ),
    ),
    Row(
        "2. Network processors",
        (
            Panel(
                "Idle share of network processors",
                "Below 0.3 the network threads are the bottleneck.",
                ((f"kafka_network_socketserver_networkprocessoravgidle_percent{{{BROKER}}}", "{{instance}}"),),
                "percentunit",
                is_share=True,
            ),
            Panel(
                "Connections",
                "Open connections, by listener.",
                (
                    (
                        "sum by (instance, listener) "
                        f"(kafka_server_socket_server_metrics_connection_count{{{BROKER}}})",
                        "{{instance}} {{listener}}",
                    ),
                ),
            ),
            Panel(
                "Bytes of requests and responses",
                "Read from and written to sockets.",
                (
                    by_broker("kafka_server_socket_server_metrics_incoming_byte_total")[:1] + ("{{instance}} in",),
                    by_broker("kafka_server_socket_server_metrics_outgoing_byte_total")[:1] + ("{{instance}} out",),
                ),
                "Bps",
                span=24,
            ),
        ),
    ),
    Row(
        "3. Request queue",
        (
            Panel(
                "Requests in the queue",
                "Requests waiting for a handler. At the capacity the network processors stop reading (back-pressure).",
                (
                    (f"kafka_network_requestchannel_requestqueuesize{{{BROKER}}}", "{{instance}}"),
                    (f"min(kafka_network_requestchannel_requestqueuecapacity{{{BROKER}}})", "capacity"),
                ),
            ),
            Panel(
                "Requests answered",
                "Per second, by API.",
                (
                    (
                        f"sum by (request) (rate(kafka_network_requestmetrics_requests_total{{{BROKER}}}{RATE})) > 0",
                        "{{request}}",
                    ),
                ),
                "reqps",
            ),
        ),
    ),
    Row(
        "4. Request handlers",
        (
            Panel(
                "Idle share of request handlers",
                "Below 0.3 the handlers are the bottleneck.",
                ((f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{BROKER}}}", "{{instance}}"),),
                "percentunit",
                is_share=True,
            ),
            Panel(
                "Handlers at work",
                "Handlers that do not sleep, and the number of all handlers.",
                (
                    (
                        f"kafka_server_kafkarequesthandlerpool_requesthandlercount{{{BROKER}}}"
                        f" - kafka_server_kafkarequesthandlerpool_sleepingrequesthandlercount{{{BROKER}}}",
                        "{{instance}}",
                    ),
                    (f"max(kafka_server_kafkarequesthandlerpool_requesthandlercount{{{BROKER}}})", "handlers"),
                ),
            ),
            Panel(
                "Errors in responses",
                "Per second, by API and error.",
                (
                    (
                        "sum by (request, error) "
                        f'(rate(kafka_network_requestmetrics_errors_total{{{BROKER}, error!="NONE"}}{RATE}))'
                        f" or 0 * sum(kafka_network_requestmetrics_errors_total{{{BROKER}}})",
                        "{{request}} {{error}}",
                    ),
                ),
                "reqps",
            ),
            Panel(
                "Slow requests",
                "Per second, by API: requests slower than barnabas.slow.request.ms, which are logged.",
                (
                    (
                        f"sum by (request) (rate(barnabas_request_slow_total{{{BROKER}}}{RATE}))"
                        f" or 0 * sum(kafka_server_kafkaserver_brokerstate{{{BROKER}}})",
                        "{{request}}",
                    ),
                ),
                "reqps",
            ),
        ),
    ),
    Row(
        "5. Purgatories",
        (
            Panel(
                "Waiting requests",
                "Produce waits for followers, Fetch for records, topic for the controller.",
                (
                    (
                        "sum by (delayedOperation) "
                        f"(kafka_server_delayedoperationpurgatory_numdelayedoperations{{{BROKER}}})",
                        "{{delayedOperation}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Watch entries",
                "One for each waiting request and partition. Entries of completed requests stay until they are purged.",
                (
                    (
                        f"sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_purgatorysize{{{BROKER}}})",
                        "{{delayedOperation}}",
                    ),
                ),
                stacked=True,
            ),
        ),
    ),
    Row(
        "6. Response queues",
        (
            Panel(
                "Responses in the queues",
                "Responses that wait for their network processor.",
                (
                    (
                        f'kafka_network_requestchannel_responsequeuesize{{{BROKER}, processor!=""}}',
                        "{{instance}} {{processor}}",
                    ),
                ),
                span=24,
            ),
        ),
    ),
    Row(
        "Time",
        (
            time_split("Produce", "Mean time in each stage. Remote is the wait for followers (acks=all)."),
            time_split("FetchConsumer", "Mean time in each stage. Remote is the wait for records (fetch.max.wait.ms)."),
            time_split(
                "FetchFollower", "Mean time in each stage. Remote is the wait for records (replica.fetch.wait.max.ms)."
            ),
            Panel(
                "Produce: total time",
                "From the last byte of the request to the last byte of the response.",
                tuple(
                    (
                        f"histogram_quantile({share}, sum by (le) "
                        "(rate(kafka_network_requestmetrics_request_total_time_seconds_bucket"
                        f'{{{BROKER}, request="Produce"}}{RATE})))',
                        name,
                    )
                    for share, name in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
                ),
                "s",
                span=24,
            ),
        ),
    ),
    Row(
        "Replication",
        (
            Panel(
                "Changes of ISRs",
                "Per second. Shrinks while no broker stops mean that a follower cannot keep up.",
                (
                    (f"sum(rate(kafka_server_replicamanager_isrshrinks_total{{{BROKER}}}{RATE}))", "shrinks"),
                    (f"sum(rate(kafka_server_replicamanager_isrexpands_total{{{BROKER}}}{RATE}))", "expands"),
                ),
            ),
            Panel(
                "Lag of followers",
                "Records between the slowest partition of each broker's fetchers and its leader.",
                ((f"kafka_server_replicafetchermanager_maxlag{{{BROKER}}}", "{{instance}}"),),
            ),
        ),
    ),
)

BOARD: Final = Board(
    "request-pipeline",
    "Request pipeline",
    "The path of a request through the brokers: each stage, its queue, and its time.",
    ROWS,
)
