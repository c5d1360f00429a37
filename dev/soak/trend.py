"""The trend of one figure over time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True)
class Trend:
    """One figure at several moments; `hours` since the soak began."""

    name: str
    unit: str
    hours: Sequence[float]
    values: Sequence[float]

    @property
    def slope(self) -> float:
        """Change per hour: the median slope of all pairs (Theil and Sen), which ignores single outliers."""
        slopes = [
            (later - earlier) / (end - begin)
            for (begin, earlier), (end, later) in combinations(zip(self.hours, self.values, strict=True), 2)
            if end > begin
        ]
        return statistics.median(slopes) if slopes else 0.0

    def tenth(self, *, last: bool) -> float:
        """Median of the first tenth of the values, or of the last tenth."""
        count = max(1, len(self.values) // 10)
        return statistics.median(self.values[-count:] if last else self.values[:count])

    def summary(self) -> str:
        """Return how many values there are, from the first tenth to the last, and the largest: for a note."""
        if not self.values:
            return "not measured"
        first, last = self.tenth(last=False), self.tenth(last=True)
        return f"{len(self.values)} times, {first:.0f} to {last:.0f} {self.unit}, at most {max(self.values):.0f}"

    def cells(self) -> tuple[str, ...]:
        """A row of the table: name, number of samples, first tenth, last tenth, largest, slope per hour, unit."""
        if not self.values:
            return (self.name, "0", "", "", "", "", self.unit)
        first, last = self.tenth(last=False), self.tenth(last=True)
        return (
            self.name,
            str(len(self.values)),
            f"{first:.1f}",
            f"{last:.1f}",
            f"{max(self.values):.1f}",
            f"{self.slope:+.2f}",
            self.unit,
        )
