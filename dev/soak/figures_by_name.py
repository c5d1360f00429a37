"""The figures of a soak so far, by name."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from bench.samples import Sample
from flights.console import Console
from harness.kubernetes.kubectl import KubectlError
from harness.kubernetes.nodes import NodeError
from soak.resources import Figure
from soak.trend import Trend


@dataclass(slots=True)
class Trends:
    """What was sampled; `trends` maps a figure's name to its unit, the hours and the values."""

    trends: dict[str, tuple[str, list[float], list[float]]] = field(default_factory=dict)

    def add(self, hours: float, figure: Figure) -> None:
        """Record one figure."""
        _, moments, values = self.trends.setdefault(figure.name, (figure.unit, [], []))
        moments.append(hours)
        values.append(figure.value)

    def sample(self, figures: Iterable[Figure], hours: float) -> None:
        """Record figures that the cluster is asked for one after the other; one missing sample changes no trend."""
        with suppress(KubectlError, NodeError):
            for figure in figures:
                self.add(hours, figure)

    def table(self) -> list[Trend]:
        """Return the trends in the order in which their figures first came."""
        return [Trend(name, unit, moments, values) for name, (unit, moments, values) in self.trends.items()]

    def samples(self) -> list[Sample]:
        """Return the values, for the file."""
        return [Sample(trend.name, trend.unit, trend.values) for trend in self.table()]

    def show(self, console: Console, more: Iterable[Trend] = ()) -> None:
        """Print the table, with `more` trends at its end."""
        heading = ("", "n", "first tenth", "last tenth", "max", "slope per hour", "unit")
        console.table(heading, (trend.cells() for trend in (*self.table(), *more)))
