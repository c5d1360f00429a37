"""The queries of the dashboards as Grafana sends them to Prometheus."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from generators.dashboards import FOLDER
from harness.monitoring.prometheus import Prometheus


def queries(namespace: str, name: str, *, interval: str) -> Iterator[tuple[str, str]]:
    """Yield each query with its dashboard and panel, about one pipeline; rates are over `interval`."""
    variables = {"$__rate_interval": interval, "$namespace": namespace, "$name": name}
    for path in sorted(FOLDER.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                query = target["expr"]
                for variable, value in variables.items():
                    query = query.replace(variable, value)
                assert "$" not in query, query
                yield f"{path.stem}: {panel['title']}", query


def figures(found: Prometheus, query: str) -> list[float]:
    """Return the numbers that a query answers with."""
    values = [float(sample["value"][1]) for sample in found.query(query)]
    return [value for value in values if not math.isnan(value)]
