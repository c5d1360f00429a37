"""Series of pipelines, kept as the lines of a scrape: a thousand pipelines have some 60,000.

prometheus_client makes objects for each line whenever it renders, which takes 0.8 s for a thousand pipelines, under
Python's global lock, while the loops wait.  Here a figure becomes its line when it is set.  Only the
figure of a line that is there is formatted: a look sets some sixty, and most of them stay as they are.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from prometheus_client.utils import floatToGoString

Values: TypeAlias = tuple[str, ...]
"""Of the labels of a series, in their order."""
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(slots=True, eq=False)
class Series:
    """A gauge, or with `kind` another metric, that has a figure for each combination of its labels' values."""

    name: str
    words: str
    labels: Sequence[str]
    kind: str = "gauge"
    _lines: dict[Values, str] = field(default_factory=dict)

    def set(self, values: Values, figure: float) -> None:
        """Set a figure; it is there from now on."""
        known = self._lines.get(values)
        place = _place(known) if known is not None else self.name + _label_text(self.labels, values)
        self._lines[values] = f"{place} {_number(figure)}\n"

    def remove(self, values: Values) -> None:
        """Drop a figure, if it is there."""
        self._lines.pop(values, None)

    def text(self) -> str:
        """Return the lines; may be called in another thread."""
        head = f"# HELP {self.name} {self.words}\n# TYPE {self.name} {self.kind}\n"
        return head + "".join(list(self._lines.values()))


@dataclass(slots=True, eq=False)
class HistogramSeries(Series):
    """A histogram for each combination of its labels' values; `buckets` are upper bounds, ascending."""

    kind: str = "histogram"
    buckets: Sequence[float] = ()
    _counts: dict[Values, list[int]] = field(default_factory=dict)
    _sums: dict[Values, float] = field(default_factory=dict)

    def observe(self, values: Values, figure: float) -> None:
        """Count a figure."""
        counts = self._counts.setdefault(values, [0] * (len(self.buckets) + 1))
        counts[bisect_left(self.buckets, figure)] += 1
        self._sums[values] = self._sums.get(values, 0.0) + figure
        self._lines[values] = "".join(self._rendered(values, counts))

    def remove(self, values: Values) -> None:
        """Drop what was counted."""
        self._lines.pop(values, None)
        self._counts.pop(values, None)
        self._sums.pop(values, None)

    def _rendered(self, values: Values, counts: Sequence[int]) -> Iterable[str]:
        known = self._lines.get(values)
        places = [_place(line) for line in known.split("\n")] if known is not None else self._places(values)
        totals = list(itertools.accumulate(counts))
        for place, figure in zip(places, (*totals, totals[-1], self._sums[values]), strict=False):
            yield f"{place} {_number(figure)}\n"

    def _places(self, values: Values) -> Sequence[str]:
        """Return the lines without their figures: the buckets, then the count and the sum."""
        labels = (*self.labels, "le")
        buckets = [_label_text(labels, (*values, _number(bound))) for bound in (*self.buckets, math.inf)]
        own = _label_text(self.labels, values)
        return [
            *(f"{self.name}_bucket{bucket}" for bucket in buckets),
            f"{self.name}_count{own}",
            f"{self.name}_sum{own}",
        ]


def _place(line: str) -> str:
    """Return a line without its figure."""
    return line.rpartition(" ")[0]


def _label_text(labels: Sequence[str], values: Values) -> str:
    """Return labels as Prometheus reads them, by name."""
    pairs = sorted(zip(labels, values, strict=True))
    return "{" + ",".join([f'{label}="{value.translate(_ESCAPED)}"' for label, value in pairs]) + "}"


def _number(figure: float) -> str:
    """Return a figure as Go writes it."""
    text: str = floatToGoString(figure)  # type: ignore[no-untyped-call]
    return text
