"""An operator's clocks, of which the wall's steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fakes.world import World


@dataclass(slots=True)
class SteppingClock:
    """A wall clock that is `ahead` of the monotonic one."""

    world: World
    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return self.world.now + self.ahead

    def monotonic(self) -> float:
        return self.world.now.timestamp()
