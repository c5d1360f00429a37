"""Write the Grafana dashboards of the chart; `make reference` runs it. What they show is in `panels`."""

from __future__ import annotations

from pathlib import Path
from string import ascii_uppercase
from typing import Final

from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

from generators.panels import BOARDS, PIPELINE, Board, Panel
from generators.reference import ROOT

FOLDER: Final = ROOT / "charts/fencepost/dashboards"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="$datasource")
COLUMNS: Final = 24
HEIGHT: Final = 7


def dashboard(board: Board) -> str:
    """Return a dashboard as JSON."""
    builder = (
        Dashboard(f"Fencepost / {board.title}")
        .uid(f"fencepost-{board.name}")
        .description(board.about)
        .tags(["fencepost"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .readonly()
        .with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    if board.name == "pipeline":
        for name, query in PIPELINE.items():
            builder = builder.with_variable(
                QueryVariable(name)
                .label(name.capitalize())
                .datasource(SOURCE)
                .query(query)
                .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            )
    for title, panels in board.rows.items():
        builder = builder.with_row(Row(title))
        for panel in panels:
            builder = builder.with_panel(_panel(panel))
    text: str = JSONEncoder(sort_keys=True, indent=1).encode(builder.build())
    return f"{text}\n"


def _panel(panel: Panel) -> stat.Panel | timeseries.Panel:
    made: stat.Panel | timeseries.Panel = stat.Panel() if panel.is_number else timeseries.Panel().min(0)
    made = made.title(panel.title).description(panel.about).unit(panel.unit).datasource(SOURCE)
    made = made.span(panel.width).height(HEIGHT if not panel.is_number else HEIGHT // 2)
    for letter, (expression, legend) in zip(ascii_uppercase, panel.queries.items(), strict=False):
        query = prometheus.Dataquery().ref_id(letter).expr(expression).legend_format(legend or "__auto")
        made = made.with_target(query.instant() if panel.is_number else query.range())
    return made


def files() -> dict[Path, str]:
    """Return each file of the chart's dashboards with its text."""
    return {FOLDER / f"{board.name}.json": dashboard(board) for board in BOARDS}


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
