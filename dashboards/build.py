"""`python -m dashboards.build`: writes the Grafana dashboards. With `--check` it only checks whether they are current.

The boards are tables (`panels.py` and a module for each). Grafana's Foundation SDK makes the JSON.
"""

from __future__ import annotations

import sys
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
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)

from dashboards import cluster, consumer_lag, replication, request_pipeline, topics
from dashboards.panels import CLUSTERS, SOURCE, Board, Panel, Variable

DIRECTORY: Final = Path(__file__).resolve().parent / "json"
SOURCE_REF: Final = DataSourceRef(type_val="prometheus", uid=f"${{{SOURCE}}}")
#: The default source of a board: the provisioned one.
PROVISIONED: Final = VariableOption(selected=True, text="Prometheus", value="prometheus")
TAG: Final = "barnabas"
BOARDS: Final = (request_pipeline.BOARD, cluster.BOARD, topics.BOARD, consumer_lag.BOARD, replication.BOARD)


def build() -> dict[str, str]:
    """Return the JSON of each dashboard, by file name."""
    return {f"{board.name}.json": _json(board) for board in BOARDS}


def _json(board: Board) -> str:
    made = (
        dashboard.Dashboard(board.title)
        .uid(f"barnabas-{board.name}")
        .description(board.description)
        .tags([TAG, "kafka"])
        .refresh("5s")
        .time("now-15m", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(
            dashboard.DashboardLink("Other boards")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable(SOURCE).label("Source").type("prometheus").current(PROVISIONED))
    )
    for variable in (CLUSTERS, *board.variables):
        made = made.with_variable(_variable(variable))
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(_number(panel) if panel.is_number else _graph(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _variable(variable: Variable) -> dashboard.QueryVariable:
    made = (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(SOURCE_REF)
        .query(variable.values)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )
    return made if variable.all_values is None else made.all_value(variable.all_values)


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
        .datasource(SOURCE_REF)
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
        .datasource(SOURCE_REF)
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
    """Write the files. With --check return 1 if one of them is not current."""
    stale = [name for name, text in build().items() if not _is_current(name, text)]
    if "--check" in arguments:
        print("\n".join(f"{name} is stale: run make dashboards" for name in stale), end="")
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
