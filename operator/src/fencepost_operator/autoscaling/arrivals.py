"""How fast records arrive in each partition: measured by a process from the ends of the log that it sees."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

RECENT: Final = 10.0
"""Seconds that a rate is measured over, to see a burst."""
USUAL: Final = 60.0
"""Seconds that a rate is measured over, to see past the noise."""
SHORTEST: Final = 20.0
"""Seconds after which there is a usual rate."""
SPACING: Final = 5.0
"""Seconds between two samples that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Records per second of each 'topic/partition': over the last seconds, and over the last minute."""

    recent: Mapping[str, float]
    usual: Mapping[str, float]


@dataclass(slots=True)
class ArrivalWindow:
    """The ends of the log of one pipeline over the last minute, with the seconds at which they were seen."""

    _samples: deque[tuple[float, Mapping[str, int]]] = field(default_factory=deque)

    def seen(self, at: float, ends: Mapping[str, int]) -> Arrivals | None:
        """Take what the log's ends are by a monotonic clock; None until they were seen for long enough."""
        samples = self._samples
        while len(samples) > 1 and at - samples[1][0] >= USUAL:
            samples.popleft()
        usual = _rates(samples[0], at, ends) if samples and at - samples[0][0] >= SHORTEST else None
        recent = next((each for each in reversed(samples) if at - each[0] >= RECENT), None)
        if not samples or at - samples[-1][0] >= SPACING:
            samples.append((at, ends))
        if usual is None or recent is None:
            return None
        return Arrivals(recent=_rates(recent, at, ends), usual=usual)


def _rates(before: tuple[float, Mapping[str, int]], at: float, ends: Mapping[str, int]) -> Mapping[str, float]:
    since, begins = before
    return {key: max(0, end - begins[key]) / (at - since) for key, end in ends.items() if key in begins}
