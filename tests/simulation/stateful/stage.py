"""Processes in turns: in each turn one actor of one process takes a step, and a clock moves that only the stage moves.

A process that is frozen inside a call stays there while other turns are played inside that call.  So what is frozen
last wakes up first; in all else the turns are as free as those of real processes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from fakes.clock import Clock

Steps: TypeAlias = Generator[Callable[[], bool] | None, None, None]
"""What an actor does; after each `yield` others run, at least until the condition holds."""
DEEPEST: Final = 3
"""Calls in which a process stays while others run."""
IDLE: Final = 15.0
"""Seconds of a turn in which no actor is ready."""


class Killed(BaseException):
    """A process ends at this call."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.name)
        self.process = process


@dataclass(eq=False, slots=True)
class Process:
    """One process: what kind it is, and by how many seconds its wall clock is ahead."""

    name: str
    kind: str
    skew: float = 0.0
    is_dead: bool = False
    frozen_until: int = 0
    """The turn in which it wakes up."""

    def check_alive(self) -> None:
        """Raise Killed when it has ended while it waited."""
        if self.is_dead:
            raise Killed(self)


@dataclass(eq=False, slots=True)
class Actor:
    """A thread of a process."""

    process: Process
    steps: Steps
    waits_for: Callable[[], bool] | None = None
    is_busy: bool = False
    """Inside a step, in which a call lasts."""
    is_over: bool = False


@dataclass(slots=True)
class Stage:
    """Who runs next. `begins` is called at the start of each turn."""

    dice: random.Random
    clock: Clock = field(default_factory=Clock)
    begins: Callable[[], None] = lambda: None
    turn: int = 0
    actors: list[Actor] = field(default_factory=list)
    running: list[Process] = field(default_factory=list)
    """The process that runs is the last one; those before wait for its answer."""
    depth: int = 0

    def micros(self) -> int:
        """Return the wall time of the process that runs, in µs since 1970."""
        skew = self.running[-1].skew if self.running else 0.0
        return self.clock.micros() + int(skew * 1e6)

    def start(self, process: Process, steps: Steps) -> Actor:
        """Add an actor."""
        self.actors.append(actor := Actor(process, steps))
        return actor

    def kill(self, process: Process) -> None:
        """End a process that does not run; one that waits inside a call ends when the turns come back to it."""
        process.is_dead = True
        for actor in self.actors:
            actor.is_over = actor.is_over or actor.process is process
        self.actors = [actor for actor in self.actors if actor.process is not process]

    def is_awake(self, process: Process) -> bool:
        """Return whether a process may run."""
        return not process.is_dead and self.turn >= process.frozen_until

    def play(self) -> None:
        """Play one turn."""
        self.turn += 1
        self.begins()
        turn = self.turn
        ready = [
            actor
            for actor in self.actors
            if not actor.is_busy
            and turn >= actor.process.frozen_until
            and (actor.waits_for is None or actor.waits_for())
        ]
        if not ready:
            self.clock.sleep(IDLE)
            return
        self.clock.sleep(0.02)
        self._resume(ready[int(self.dice.random() * len(ready))])

    def hold(self, turns: int, *, frozen: bool) -> None:
        """Let others run inside a call of the running process. Raises Killed when it has ended meanwhile."""
        process = self.running[-1]
        if self.depth < DEEPEST:
            self.depth += 1
            end = self.turn + turns
            if frozen:
                process.frozen_until = max(process.frozen_until, end + 1)
            while self.turn < end:
                self.play()
            process.frozen_until = min(process.frozen_until, self.turn)
            self.depth -= 1
        process.check_alive()

    def call(self, process: Process, work: Callable[[], object]) -> None:
        """Let a process do something at once; it may end in it."""
        self.running.append(process)
        try:
            work()
        except Killed as killed:
            self._ended(killed, process)
        finally:
            self.running.pop()

    def _resume(self, actor: Actor) -> None:
        actor.is_busy, actor.waits_for = True, None
        self.running.append(actor.process)
        try:
            actor.waits_for = next(actor.steps)
        except StopIteration:
            self._end(actor)
        except Killed as killed:
            self._ended(killed, actor.process)
        finally:
            actor.is_busy = False
            self.running.pop()

    def _ended(self, killed: Killed, process: Process) -> None:
        if killed.process is not process:
            raise killed
        self.kill(process)

    def _end(self, actor: Actor) -> None:
        actor.is_over = True
        if actor in self.actors:
            self.actors.remove(actor)
