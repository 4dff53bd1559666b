"""`python -m dashboards.build`: the Grafana dashboards, from code (`--check` only says whether the JSON is current).

A panel is a row of a table: title, what it tells, unit, and pairs of a PromQL expression and a legend. Grafana's
Foundation SDK makes the JSON. `tests/compose` evaluates every expression against a real Prometheus.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)

DIRECTORY: Final = Path(__file__).resolve().parent / "json"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="prometheus")  # as provisioned

BROKER: Final = 'job="kafka-broker", instance=~"$broker"'
RATE: Final = "[$__rate_interval]"
STAGES: Final = (  # in the order that a request passes them
    ("request queue", "requestqueuetimems"),
    ("local (handler)", "localtimems"),
    ("remote (purgatory)", "remotetimems"),
    ("throttle", "throttletimems"),
    ("response queue", "responsequeuetimems"),
    ("response send", "responsesendtimems"),
)


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture. `good_below`: a single number instead, green below that value and red from it on."""

    title: str
    description: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    stacked: bool = False
    span: int = 12
    good_below: float | None = None
    is_number: bool = False
    is_share: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def stage_times(request: str) -> tuple[tuple[str, str], ...]:
    """The mean time that a request spends in each stage; stacked they are its total time."""
    return tuple(
        (
            f'sum(rate(kafka_network_requestmetrics_{metric}_sum{{{BROKER}, request="{request}"}}{RATE})) / '
            f'sum(rate(kafka_network_requestmetrics_{metric}_count{{{BROKER}, request="{request}"}}{RATE}))',
            stage,
        )
        for stage, metric in STAGES
    )


def time_split(request: str, description: str) -> Panel:
    return Panel(f"{request}: where the time goes", description, stage_times(request), unit="ms", stacked=True)


def number(
    title: str, description: str, expression: str, good_below: float | None = None, unit: str = "short"
) -> Panel:
    return Panel(title, description, ((expression, ""),), unit, span=4, good_below=good_below, is_number=True)


REQUEST_PIPELINE: Final = (
    Row(
        "At a glance",
        (
            number(
                "Active brokers",
                "Brokers that the controller counts as alive.",
                'max(kafka_controller_kafkacontroller_activebrokercount{job="kafka-controller"})',
            ),
            number(
                "Under-replicated partitions",
                "Partitions whose ISR is smaller than their replica list.",
                f"sum(kafka_server_replicamanager_underreplicatedpartitions{{{BROKER}}})",
                good_below=1,
            ),
            number(
                "Under min ISR",
                "Partitions that refuse acks=all for want of replicas.",
                f"sum(kafka_server_replicamanager_underminisrpartitioncount{{{BROKER}}})",
                good_below=1,
            ),
            number(
                "Offline partitions",
                "Partitions without a leader.",
                'max(kafka_controller_kafkacontroller_offlinepartitionscount{job="kafka-controller"})',
                good_below=1,
            ),
            number(
                "Messages in",
                "Records that producers got in, a second.",
                f'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{{{BROKER}, topic=""}}{RATE}))',
                unit="cps",
            ),
            number(
                "Memory",
                "Resident memory of the brokers together.",
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
        "1. Network processors",
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
        ),
    ),
    Row(
        "2. Request queue",
        (
            Panel(
                "Requests in the queue",
                "Read, not yet taken by a handler. At the capacity the network processors stop reading: back-pressure.",
                (
                    (f"kafka_network_requestchannel_requestqueuesize{{{BROKER}}}", "{{instance}}"),
                    (f"min(kafka_network_requestchannel_requestqueuecapacity{{{BROKER}}})", "capacity"),
                ),
            ),
            Panel(
                "Requests answered",
                "A second, by API.",
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
        "3. Request handlers",
        (
            Panel(
                "Idle share of request handlers",
                "Below 0.3 the handlers are the bottleneck.",
                ((f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{BROKER}}}", "{{instance}}"),),
                "percentunit",
                is_share=True,
            ),
            Panel(
                "Errors in responses",
                "A second, by API and error.",
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
        ),
    ),
    Row(
        "4. Purgatories",
        (
            Panel(
                "Waiting requests",
                "Produce waits for followers, Fetch for bytes, topic for the controller.",
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
                "One a waiting request and partition; done ones stay until they are purged.",
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
        "5. Response queues",
        (
            Panel(
                "Responses in the queues",
                "Ready, not yet taken by their network processor.",
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
            time_split("FetchConsumer", "Mean time in each stage. Remote is the wait for bytes (fetch.max.wait.ms)."),
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
                "A second. Shrinks without a broker's end mean a follower that cannot keep up.",
                (
                    (f"sum(rate(kafka_server_replicamanager_isrshrinks_total{{{BROKER}}}{RATE}))", "shrinks"),
                    (f"sum(rate(kafka_server_replicamanager_isrexpands_total{{{BROKER}}}{RATE}))", "expands"),
                ),
            ),
            Panel(
                "Lag of followers",
                "Records that the slowest partition of each broker's fetchers is behind its leader.",
                ((f"kafka_server_replicafetchermanager_maxlag{{{BROKER}}}", "{{instance}}"),),
            ),
        ),
    ),
)


def build() -> dict[str, str]:
    """The JSON of each dashboard, by file name."""
    variable = (
        dashboard.QueryVariable("broker")
        .label("Broker")
        .datasource(SOURCE)
        .query('label_values(kafka_server_kafkaserver_brokerstate{job="kafka-broker"}, instance)')
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )
    made = (
        dashboard.Dashboard("Request pipeline")
        .uid("barnabas-request-pipeline")
        .description("A request's way through the brokers: each stage, its queue, and the time spent in it.")
        .tags(["barnabas", "kafka"])
        .refresh("5s")
        .time("now-15m", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(variable)
    )
    for row in REQUEST_PIPELINE:
        made = made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(_number(panel) if panel.is_number else _graph(panel))
    return {"request-pipeline.json": JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"}


def _targets(panel: Panel) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery().expr(expression).legend_format(legend or "__auto").ref_id(chr(ord("A") + number))
        for number, (expression, legend) in enumerate(panel.queries)
    ]


def _number(panel: Panel) -> stat.Panel:
    made = (
        stat.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(panel.span)
        .height(4)
        .targets(_targets(panel))
        .graph_mode(BigValueGraphMode.AREA)
        .color_mode(BigValueColorMode.VALUE)
    )
    steps = [Threshold(color="green", value=None)]
    if panel.good_below is not None:
        steps.append(Threshold(color="red", value=panel.good_below))
    return made.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))


def _graph(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(panel.span)
        .height(8)
        .min(0)
        .targets(_targets(panel))
        .fill_opacity(30 if panel.stacked else 8)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if panel.stacked:
        made = made.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    return made.max(1) if panel.is_share else made


def main(arguments: list[str]) -> int:
    """Write the files, or with --check fail if one is not what the code makes."""
    stale = [name for name, text in build().items() if not _is_current(name, text)]
    if "--check" in arguments:
        print("\n".join(f"{name} is not what dashboards/build.py makes" for name in stale), end="")
        return bool(stale)
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in build().items():
        (DIRECTORY / name).write_text(text)
    return 0


def _is_current(name: str, text: str) -> bool:
    path = DIRECTORY / name
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
