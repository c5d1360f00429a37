"""Boards as console templates of Prometheus, for pictures: Grafana's own pages need Grafana."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

from generators.panels import Board, Panel
from harness.monitoring.prometheus import Prometheus

WIDTH: Final = 1040
"""Of the page, in pixels."""
_GAP: Final = 16
_COLUMNS: Final = 24
_HEAD: Final = r"""{{ template "head" . }}
{{ template "prom_content_head" . }}
<style>
nav, .navbar, .prom_lhs_menu, .prom_content_side, .prom_graph_timecontrol, .prom_graph_time_control, .prom_graph_link,
.prom_graph_hover_detail, .prom_graph_xtitle, .prom_graph_ytitle {display: none !important}
body, main, .container-fluid, .prom_console_content {padding: 0 !important; margin: 0 !important}
#board {width: WIDTHpx; padding: 8px GAPpx; display: grid; grid-template-columns: repeat(24, 1fr); column-gap: GAPpx}
#board h2 {grid-column: span 24; font-size: 1rem; margin: 10px 0 4px; border-bottom: 1px solid #ccc}
#board h3 {font-size: 0.8rem; margin: 4px 0 8px}
.rickshaw_graph svg {overflow: visible; clip-path: inset(-8px 0)}
.panel {position: relative}
.number {font-size: 1.4rem; color: #2a6f97}
.moment {position: absolute; top: 28px; height: 130px; padding-left: 3px; font-size: 0.7rem; color: #c1121f;
border-left: 2px dashed #c1121f}
.rickshaw_legend {font-size: 0.65rem; padding: 2px !important; background: none !important; color: #333 !important}
.rickshaw_legend .line {display: inline-block; padding: 0 6px 0 0 !important; margin: 0 !important}
.rickshaw_legend .label {color: #333 !important; font-weight: normal; padding: 0}
</style>
<script>
function shown(unit) {
  var small = {"percentunit": [100, " %"], "bytes": [1, "B"], "Bps": [1, "B/s"], "s": [1, " s"]}[unit] || [1, ""];
  var size = unit === "bytes" || unit === "Bps" ? 1024 : 1000;
  var names = size === 1024 ? ["", "Ki", "Mi", "Gi"] : ["", "k", "M", "G"];
  return function(y) {
    if (y === null || y === 0) { return "0"; }
    var value = y * small[0], power = 0;
    while (Math.abs(value) >= size && power < 3) { value /= size; power += 1; }
    return parseFloat(value.toPrecision(3)) + names[power] + small[1];
  };
}
function named(text) {
  return text === null ? null : function(labels) {
    return text.replace(/\[\[(\w+)\]\]/g, function(_, label) { return labels[label] || "-"; });
  };
}
function draw(id, params, moment) {
  params.name = params.name.map(named);
  params.node = document.getElementById(id);
  params.yAxisFormatter = params.yHoverFormatter = shown(params.unit);
  var graph = new PromConsole.Graph(params);
  var at = moment === null ? -1 : 1 - (params.endTime - moment.at) / params.duration;
  if (at >= 0 && at <= 1) {
    var mark = document.createElement("div");
    mark.className = "moment";
    mark.textContent = moment.what;
    mark.style.left = graph.graphTd.offsetLeft + at * graph.graphTd.offsetWidth + "px";
    params.node.parentNode.appendChild(mark);
  }
}
</script>
<div id="board">
""".replace("WIDTH", str(WIDTH)).replace("GAP", str(_GAP))
_TAIL: Final = """</div>
{{ template "prom_content_tail" . }}
{{ template "tail" }}
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment that each panel marks, in seconds since 1970."""

    at: float
    what: str


@dataclass(frozen=True, slots=True)
class Span:
    """What is drawn: from when to when, in seconds since 1970, and the values of Grafana's variables."""

    start: float
    end: float
    variables: Mapping[str, str]
    moment: Moment | None = None

    def filled(self, query: str) -> str:
        """Return a query with the variables' values."""
        for name, value in self.variables.items():
            query = query.replace(name, value)
        return query


def template(board: Board, span: Span, prometheus: Prometheus) -> str:
    """Return the console template of a board; its numbers are those of the end."""
    found, numbers = [_HEAD], count()
    for title, panels in board.rows.items():
        found.append(f"<h2>{html.escape(title)}</h2>")
        for panel in panels:
            found.append(
                f'<div class="panel" style="grid-column: span {panel.width}"><h3>{html.escape(panel.title)}</h3>'
            )
            found.append(_number(panel, span, prometheus) if panel.is_number else _graph(panel, span, next(numbers)))
            found.append("</div>")
    return "\n".join([*found, _TAIL])


def _number(panel: Panel, span: Span, prometheus: Prometheus) -> str:
    (query,) = panel.queries
    samples = prometheus.query(span.filled(query), at=span.end)
    text = samples[0]["value"][1] if samples else "-"
    shown = json.dumps(text.replace("+Inf", "∞"))
    place = "document.currentScript.previousElementSibling.textContent"
    formatted = f"isNaN({shown}) ? {shown} : shown({json.dumps(panel.unit)})(parseFloat({shown}))"
    return f'<div class="number"></div><script>{place} = {formatted}</script>'


def _graph(panel: Panel, span: Span, number: int) -> str:
    names = [legend.replace("{{", "[[").replace("}}", "]]") or None for legend in panel.queries.values()]
    params = {
        "expr": [span.filled(query) for query in panel.queries],
        "name": names,
        "unit": panel.unit,
        "min": 0,
        "height": 130,
        "width": (WIDTH - 2 * _GAP) * panel.width // _COLUMNS - _GAP,
        "duration": span.end - span.start,
        "endTime": span.end,
        "yAxisTicks": 4,
    }
    moment = {"at": span.moment.at, "what": span.moment.what} if span.moment else None
    place = f"panel-{number}"
    return f'<div id="{place}"></div><script>draw("{place}", {json.dumps(params)}, {json.dumps(moment)})</script>'
