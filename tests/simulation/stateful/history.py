"""A history: how the pipeline is set up, and what happens. A seed makes one, the same on each machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from simulation.history import printed
from simulation.stateful import events as e

TROUBLED: Final = 320
"""Turns in which events happen."""
MOST_EVENTS: Final = 9
CALLS: Final[tuple[e.Call, ...]] = (
    "any", "read", "swap", "swap", "swap", "write", "write", "read_chunks", "delete", "delete", "add_range", "ranges",
    "leave_range", "server_time", "insert_snapshot", "insert_snapshot", "read_snapshot", "checkpoints",
    "delete_snapshot", "request", "request", "report",
)  # fmt: skip
HOWS: Final[tuple[e.How, ...]] = ("kill", "kill", "freeze", "freeze", "pause", "lose", "lose", "late")
KINDS: Final[tuple[e.Kind, ...]] = ("any", "any", "driver", "driver", "executor", "worker", "operator")
JUMPS: Final = (10.0, 40.0, 70.0, 110.0, 200.0)
"""Seconds; a snapshot may take 60 of them, and a file is collected after 180."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The pipeline. A duplicate is a speculative attempt of a task; skews are seconds that a clock is ahead."""

    records: int = 10
    """Of each partition."""
    largest: int = 3
    """Records of a batch, of a partition."""
    operators: int = 1
    duplicates: float = 0.1
    full_every: int = 3
    """Versions between two snapshots of a store."""
    poison: tuple[tuple[int, int], ...] = ()
    """Records that fail until a user leaves them out: partition and offset."""
    driver_skew: float = 0.0
    operator_skew: float = 0.0


POISONED: Final = 0.15
"""How often a history has a record that fails."""
EMPTIES: Final = 0.3
"""How often a rewind empties the state."""

Maker: TypeAlias = Callable[[random.Random, int], e.Event]


@dataclass(frozen=True, slots=True)
class History:
    """Events in the order of their turns; `seed` is where it came from, and decides who runs when."""

    seed: int
    setup: Setup
    events: tuple[e.Event, ...]

    @staticmethod
    def random(seed: int) -> History:
        """Return the history of a seed."""
        chance = random.Random(seed)
        setup = Setup(
            records=chance.choice((5, 8, 12)),
            largest=chance.choice((1, 2, 4)),
            operators=chance.choice((1, 1, 2)),
            duplicates=chance.choice((0.0, 0.1, 0.5)),
            full_every=chance.choice((2, 3, 5)),
            driver_skew=chance.choice((0.0, 0.0, -40.0, 40.0)),
            operator_skew=chance.choice((0.0, 0.0, -40.0, 40.0)),
        )
        setup = replace(setup, poison=_poison(random.Random(f"poison of {seed}"), setup.records))
        count = chance.randint(1, MOST_EVENTS)
        made = [_event(chance, round(chance.uniform(1, TROUBLED))) for _ in range(count)]
        if seed % 7 == 1:
            made += _cancelled_rewind(random.Random(f"cancelled of {seed}"))
        if seed % 3 == 0:
            made += _long_stop(random.Random(f"stop of {seed}"))
        if seed % 4 == 2:
            made += _losses(random.Random(f"losses of {seed}"))
        return History(seed, setup, tuple(sorted(made, key=lambda event: event.at)))

    def __str__(self) -> str:
        """Return it as Python, one line per event."""
        return printed(self)


def _event(chance: random.Random, at: int) -> e.Event:
    (make,) = chance.choices(list(MAKERS), weights=list(MAKERS.values()))
    return make(chance, at)


def _some(chance: random.Random) -> int:
    return chance.choice((3, 10, 30, 60, 120))


def _interrupt(chance: random.Random, at: int) -> e.Event:
    return e.Interrupt(
        at,
        call=chance.choice(CALLS),
        when=chance.choice(("before", "after")),
        how=chance.choice(HOWS),
        who=chance.choice(KINDS),
        seconds=_some(chance),
    )


def _rewind(chance: random.Random, at: int) -> e.Event:
    made = e.Rewind(at, number=chance.randrange(3), same=chance.random() < 0.2, delete_output=chance.random() < 0.5)
    return replace(made, empty=random.Random(f"empty state of {made}").random() < EMPTIES)


def _long_stop(chance: random.Random) -> list[e.Event]:
    """Return a call that takes longer than a snapshot may, or than files are kept, and what may happen meanwhile."""
    at = round(chance.uniform(1, TROUBLED - 40))
    call, who = chance.choice(STOPS)
    how: e.How = chance.choice(("freeze", "pause"))
    made: list[e.Event] = [
        e.Interrupt(at, call=call, when=chance.choice(("before", "after")), how=how, who=who, seconds=120),
        *(e.Pass(at + after, jump=chance.choice(JUMPS)) for after in (30, 60, 90)),
    ]
    if call == "insert_snapshot":
        made.append(e.Snapshot(at))
    if chance.random() < 0.5:
        made.append(e.Replace(at + 15))
    return made


def _poison(chance: random.Random, records: int) -> tuple[tuple[int, int], ...]:
    """Return at most one record that fails."""
    return ((chance.randrange(2), chance.randrange(records)),) if chance.random() < POISONED else ()


def _losses(chance: random.Random) -> list[e.Event]:
    """Return losses of a record or two, one of them with a run that begins then."""
    made: list[e.Event] = [
        e.Lose(round(chance.uniform(1, TROUBLED)), partition=chance.randrange(2), records=chance.randint(1, 2))
        for _ in range(chance.randint(1, 3))
    ]
    return [*made, e.Replace(made[0].at + chance.randrange(10))]


def _cancelled_rewind(chance: random.Random) -> list[e.Event]:
    """Return a rewind that deletes output and is cancelled in one of its steps."""
    at = round(chance.uniform(20, TROUBLED - 60))
    return [
        e.Snapshot(round(chance.uniform(1, at))),
        e.Kill(at),
        e.Rewind(at, same=True, delete_output=True),
        e.CancelRewinds(at + chance.randrange(40)),
    ]


STOPS: Final[tuple[tuple[e.Call, e.Kind], ...]] = (
    ("insert_snapshot", "operator"), ("write", "driver"), ("write", "worker"), ("swap", "driver"), ("ranges", "driver"),
    ("checkpoints", "driver"), ("read", "driver"), ("delete", "driver"), ("report", "worker"), ("request", "executor"),
)  # fmt: skip
"""Calls that last, and of which process."""
MAKERS: Final[Mapping[Maker, int]] = {
    _interrupt: 40,
    lambda chance, at: e.Kill(at, who=chance.choice(KINDS)): 8,
    lambda chance, at: e.Freeze(at, who=chance.choice(KINDS), seconds=_some(chance)): 8,
    lambda chance, at: e.Outage(at, who=chance.choice(KINDS), seconds=_some(chance)): 5,
    lambda _, at: e.Replace(at): 10,
    lambda _, at: e.Twin(at): 3,
    lambda _, at: e.NewCode(at): 3,
    lambda _, at: e.Snapshot(at): 14,
    lambda chance, at: e.DropSnapshot(at, number=chance.randrange(3)): 5,
    _rewind: 10,
    lambda _, at: e.CancelRewinds(at): 2,
    lambda chance, at: e.Pass(at, jump=chance.choice(JUMPS)): 18,
    lambda chance, at: e.StepClock(
        at, who=chance.choice(KINDS), ahead=chance.choice((-400.0, -60.0, 60.0, 400.0)), seconds=_some(chance)
    ): 4,
}
