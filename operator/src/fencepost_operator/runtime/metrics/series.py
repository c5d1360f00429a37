"""Series of pipelines, kept as the lines of a scrape: a thousand pipelines have some 60,000.

prometheus_client makes objects for each line whenever it renders, which takes 0.8 s for a thousand pipelines, under
Python's global lock, while the loops wait.  Here a figure becomes its line when it is set.
"""

from __future__ import annotations

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
        self._lines[values] = f"{self.name}{_label_text(self.labels, values)} {_number(figure)}\n"

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
        total = 0
        for bound, count in zip((*self.buckets, math.inf), counts, strict=True):
            total += count
            place = _label_text((*self.labels, "le"), (*values, _number(bound)))
            yield f"{self.name}_bucket{place} {float(total)}\n"
        place = _label_text(self.labels, values)
        yield f"{self.name}_count{place} {float(total)}\n"
        yield f"{self.name}_sum{place} {_number(self._sums[values])}\n"


def _label_text(labels: Sequence[str], values: Values) -> str:
    """Return labels as Prometheus reads them, by name."""
    pairs = sorted(zip(labels, values, strict=True))
    return "{" + ",".join([f'{label}="{value.translate(_ESCAPED)}"' for label, value in pairs]) + "}"


def _number(figure: float) -> str:
    """Return a figure as Go writes it."""
    text: str = floatToGoString(figure)  # type: ignore[no-untyped-call]
    return text
