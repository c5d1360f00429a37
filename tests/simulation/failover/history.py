"""Random histories of two regions: what happens to which, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, TypeAlias

REGIONS: Final = 2
TROUBLED: Final = 300.0
LONGEST: Final = 120.0
"""Seconds that a region is lost, cut off or frozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseRegion:
    """The operator, the API server and, where `drivers`, all machines of a region end; after `seconds` they start."""

    at: float
    region: int = 0
    seconds: float = 60.0
    drivers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """Neither the operator nor the drivers of a region reach the fence."""

    at: float
    region: int = 0
    seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flap:
    """A region reaches the fence only at times: not for `away` seconds, then for `there` seconds, and so on."""

    at: float
    region: int = 0
    away: float = 40.0
    there: float = 20.0
    seconds: float = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRegion:
    """All processes of a region stand still, and continue where they were."""

    at: float
    region: int = 0
    seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseStore:
    """The fence answers neither region."""

    at: float
    seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KillDriver:
    """The driver's process ends."""

    at: float
    region: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPods:
    """The drivers of a region end, and none starts there: its operator lives, and there is no commit."""

    at: float
    region: int = 0
    seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseAnswer:
    """A request of a region to the fence times out; `applied` says whether it took effect."""

    at: float
    region: int = 0
    call: str = "swap"
    applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A user moves the pipeline to the region that waits."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """A user suspends the pipeline in these regions, and resumes it."""

    at: float
    regions: tuple[int, ...] = (0,)
    seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """A user goes back by some records, in the region that owns the pipeline."""

    at: float
    records: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A user deletes the pipeline in these regions, and creates it again after `seconds`; never, where that is 0."""

    at: float
    regions: tuple[int, ...] = (0,)
    policy: str = "Retain"
    seconds: float = 60.0


Event: TypeAlias = (
    LoseRegion
    | CutOff
    | Flap
    | FreezeRegion
    | LoseStore
    | KillDriver
    | NoPods
    | LoseAnswer
    | Move
    | Suspend
    | Rewind
    | Delete
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a history begins with. `operators` is one for each region."""

    operators: int = REGIONS
    rate: float = 10.0
    """Records per second and partition; 0 is an idle pipeline."""
    batch_takes: float = 1.0
    hands_over: bool = False
    """Whether a driver that stops ends its epoch itself."""
    stands_by: bool = False
    """Whether each region keeps a warm standby of its own."""
    suspends_moved: int = 0
    """After how many of the first moves a user suspends the pipeline where it is then, before its first run there."""
    skew: float = 0.0
    """Seconds by which the second region's wall clocks are ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A setup and events."""

    seed: int
    setup: Setup
    events: tuple[Event, ...]
    troubled: float = TROUBLED
    """Seconds in which things happen."""

    @classmethod
    def random(cls, seed: int) -> History:
        """Return the history of a seed."""
        chance = random.Random(seed)
        setup = Setup(
            rate=chance.choice((0.0, 5.0, 20.0)),
            batch_takes=chance.choice((0.5, 1.0, 8.0)),
            stands_by=chance.random() < 0.25,
            hands_over=chance.random() < 0.25,
            skew=chance.choice((0.0, 0.0, -90.0, 90.0)),
            suspends_moved=chance.choice((0, 0, 0, 0, 1)),
        )
        moments = sorted(round(chance.uniform(30.0, TROUBLED), 1) for _ in range(chance.randint(1, 6)))
        return cls(seed=seed, setup=setup, events=tuple(_event(chance, at) for at in moments))


def _event(chance: random.Random, at: float) -> Event:
    region, seconds = chance.randrange(REGIONS), round(chance.uniform(5.0, LONGEST), 1)
    call = chance.choice(("swap", "read", "report_progress"))
    regions = chance.choice(((0,), (1,), (0, 1)))
    away, there = round(chance.uniform(20.0, 60.0), 1), round(chance.uniform(5.0, 60.0), 1)
    kinds: tuple[tuple[int, Event], ...] = (
        (5, LoseRegion(at=at, region=region, seconds=seconds, drivers=chance.random() < 0.7)),
        (3, CutOff(at=at, region=region, seconds=seconds)),
        (3, FreezeRegion(at=at, region=region, seconds=seconds)),
        (1, LoseStore(at=at, seconds=seconds)),
        (1, KillDriver(at=at, region=region)),
        (2, NoPods(at=at, region=region, seconds=seconds)),
        (2, LoseAnswer(at=at, region=region, call=call, applied=chance.random() < 0.5)),
        (3, Move(at=at)),
        (3, Flap(at=at, region=region, away=away, there=there, seconds=2 * seconds)),
        (2, Suspend(at=at, regions=regions, seconds=seconds)),
        (2, Rewind(at=at, records=chance.randint(1, 100))),
        (2, _deletion(chance, at, regions, seconds)),
    )
    return chance.choices([event for _, event in kinds], weights=[weight for weight, _ in kinds])[0]


def _deletion(chance: random.Random, at: float, regions: tuple[int, ...], seconds: float) -> Delete:
    policy = chance.choice(("Retain", "Retain", "Delete"))
    return Delete(at=at, regions=regions, policy=policy, seconds=chance.choice((seconds, seconds, 0.0)))
