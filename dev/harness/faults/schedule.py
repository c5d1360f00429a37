"""Faults at random moments, several at once, never two of them on the same target; a seed draws the same faults."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


class NoTargetError(Exception):
    """Nothing exists now that this fault could be injected into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One fault that was drawn. `act` injects it, lasts as long as it does, and takes it back.

    With `is_alone` it begins when all others are over and the schedule has settled, and no other begins before its end.
    """

    kind: str
    target: str
    label: str
    act: Callable[[], None]
    is_alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How densely faults follow each other.

    `between` are the seconds from one fault's start to the next one's, at least and at most. After every `burst` faults
    no fault starts for `calm` seconds, so that what recovers slowly gets its turn.
    """

    between: tuple[float, float]
    burst: int = 0
    calm: float = 0.0


@dataclass(slots=True)
class Played:
    """A fault that was started: when, on the monotonic clock, and how it ended. `missed` is why it was not injected."""

    kind: str
    label: str
    began: float
    ended: float | None = None
    missed: str = ""


@dataclass(slots=True, kw_only=True)
class Schedule:
    """Draws and injects faults. `misses` are the errors by which a fault reports that it found no target.

    `settle` waits until what faults left behind is over as well: before a fault that has to be alone, and at the end.
    """

    draw: Callable[[random.Random], Draw]
    chance: random.Random
    pace: Pace
    report: Callable[[str], None]
    misses: tuple[type[Exception], ...] = (NoTargetError,)
    settle: Callable[[], None] = lambda: None
    _threads: list[threading.Thread] = field(default_factory=list)
    _played: list[Played] = field(default_factory=list)
    _busy: set[str] = field(default_factory=set)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def inject(self, *, until: Callable[[], bool], count: int | None = None) -> None:
        """Inject until `until` holds, or until `count` faults were injected; then wait for the end of the last ones.

        Raises what a fault that is alone raises, but for a miss.
        """
        while not until() and (count is None or self.injected.total() < count):
            drawn = self.draw(self.chance)
            pause = self.chance.uniform(*self.pace.between)
            if drawn.is_alone:
                self._await_all()
            if self._reserve(drawn.target):
                self._start(drawn)
                if self.pace.burst and len(self._played) % self.pace.burst == 0:
                    pause += self.pace.calm
            time.sleep(pause)
        self._await_all()

    @property
    def injected(self) -> Counter[str]:
        """How many faults of each kind were injected and are over."""
        return Counter(one.kind for one in self.since(0.0) if one.ended is not None and not one.missed)

    @property
    def missed(self) -> Counter[str]:
        """How many faults of each kind found no target, or ended with an error."""
        return Counter(one.kind for one in self.since(0.0) if one.missed)

    def since(self, moment: float) -> list[Played]:
        """Return the faults that lasted at or after a moment of the monotonic clock, oldest first."""
        with self._guard:
            return [one for one in self._played if one.ended is None or one.ended >= moment]

    def lately(self, seconds: float) -> str:
        """Name the faults of the last seconds, with their begin and end before now."""
        now = time.monotonic()
        return ", ".join(_named(one, now) for one in self.since(now - seconds)) or "none"

    def _reserve(self, target: str) -> bool:
        with self._guard:
            if target in self._busy:
                return False
            self._busy.add(target)
            return True

    def _await_all(self) -> None:
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self.settle()

    def _start(self, drawn: Draw) -> None:
        self.report(f"fault: {drawn.label}")
        played = Played(drawn.kind, drawn.label, time.monotonic())
        with self._guard:
            self._played.append(played)
        if drawn.is_alone:
            self._run(drawn, played)
            return
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=self._run, args=(drawn, played), name=drawn.label)
        thread.start()
        self._threads.append(thread)

    def _run(self, drawn: Draw, played: Played) -> None:
        try:
            drawn.act()
        except self.misses as error:
            played.missed = f"{type(error).__name__} {error}"[:200]
            self.report(f"fault: {drawn.label} found no target or ended early: {played.missed}")
        finally:
            with self._guard:
                played.ended = time.monotonic()
                self._busy.discard(drawn.target)


def _named(one: Played, now: float) -> str:
    end = "now" if one.ended is None else f"{now - one.ended:.0f} s ago"
    return f"{one.label} from {now - one.began:.0f} s ago to {end}{', missed' if one.missed else ''}"
