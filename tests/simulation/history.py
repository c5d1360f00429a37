"""A history: how the world is set up, and what happens in it. A seed makes one, the same on each machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

from simulation import content
from simulation import events as e

TROUBLED: Final = 60.0
"""Seconds in which events happen."""
MOST_EVENTS: Final = 8
EARLY: Final = 14.0
LATE: Final = 45.0
"""Seconds: when a spec may be stable, and when a new one may have been rolled back."""
DRAINS: Final = 4.0
"""Seconds until the first master is ready."""
MOST_CHANGES: Final = 4
"""Events of an upgrade that come on top of them."""
FACTS: Final[tuple[e.Fact, ...]] = (
    "references", "release", "cluster", "objects", "runs", "runs", "node", "fence", "source",
)  # fmt: skip
PARTS: Final[tuple[e.Part, ...]] = ("driver", "driver", "master", "worker")
CALLS: Final[tuple[e.Call, ...]] = (
    "pipeline", "runs", "fence", "write_status", "write_status", "set_finalizer", "create", "take_over", "take_over",
    "start", "start", "stop", "install", "uninstall", "prune", "delete_fence", "accept_loss", "take_snapshot",
    "rewind", "rewind", "write_rewind", "mark_rewind", "start_purge",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setup:
    """The world at the start. Skews are seconds that a clock is ahead."""

    operators: int = 1
    operator_skew: float = 0.0
    driver_skew: float = 0.0
    max_attempts: int = 0
    retain: bool = True
    rate: float = 10.0
    batch_takes: float = 1.0
    rolls_back: bool = False
    """With upgrade.rollback: enabled, and a spec that is stable soon."""
    hands_over: bool = False
    """With upgrade.strategy: Handoff."""
    stands_by: bool = False
    """With restart.standby: Warm."""
    stops_soon: bool = False
    """With restart.stopTimeout."""
    volume: bool = False
    """With cluster.master.storage.storageClassName."""
    sets_aside: bool = False
    """With onPoison.action: deadLetter."""
    waits: bool = False
    """With onUnprovenDeath: wait; in the end a user confirms the deaths that nothing proves."""
    autoscales: bool = False
    """With cluster.autoscale, and a target that every outage misses."""


Maker: TypeAlias = Callable[[random.Random, Setup, float], e.Event]


@dataclass(frozen=True, slots=True)
class History:
    """Events in the order of their moments; `seed` is where it came from."""

    seed: int
    setup: Setup
    events: tuple[e.Event, ...]

    @property
    def troubled(self) -> float:
        """Seconds until the last fault is over: an operator may be blind for longer than events happen."""
        return max([TROUBLED, *(each.at + each.seconds for each in self.events if isinstance(each, e.Blindness))])

    @staticmethod
    def random(seed: int) -> History:
        """Return the history of a seed."""
        chance = random.Random(seed)
        setup = Setup(
            operators=chance.choice((1, 1, 2)),
            operator_skew=chance.choice((0.0, 0.0, -20.0, 20.0)),
            driver_skew=chance.choice((0.0, 0.0, -30.0, 30.0)),
            max_attempts=chance.choice((0, 0, 2, 4)),
            retain=chance.random() < 0.7,
            rate=chance.choice((0.0, 10.0, 10.0, 100.0)),
            batch_takes=chance.choice((1.0, 1.0, 3.0)),
            rolls_back=seed % 2 == 0,
            hands_over=seed % 7 in {2, 5},
            stands_by=seed % 11 in {3, 6, 8},
            stops_soon=seed % 5 == 0,
            volume=seed % 6 == 3,
            waits=seed % 8 == 7,
            autoscales=seed % 9 == 4,
        )
        made = [_event(chance, setup, KINDS) for _ in range(chance.randint(1, MOST_EVENTS))]
        if setup.rolls_back:
            more = random.Random(f"changes of {seed}")
            made += [_event(more, setup, CHANGES) for _ in range(more.randint(0, MOST_CHANGES))]
        if seed % 7 == 0:
            more = random.Random(f"troubles of {seed}")
            made += [_event(more, setup, TROUBLES) for _ in range(more.randint(1, MOST_CHANGES))]
        if seed % 4 == 1:
            made.append(_blindness(random.Random(f"blindness of {seed}")))
        if seed % 5 == 2:
            made.append(_step_clock(random.Random(f"clock of {seed}"), setup))
        if seed % 3 == 0:
            made.append(_drain(random.Random(f"drain of {seed}")))
        if seed % 3 == 1:
            made += _mute(random.Random(f"heartbeats of {seed}"))
        if seed % 14 == 4:
            made += _expiry(random.Random(f"expiry of {seed}"))
        if seed % 14 == 7:
            made += _growth(random.Random(f"growth of {seed}"))
        if seed % 14 == 2:
            more = random.Random(f"content of {seed}")
            setup = replace(setup, sets_aside=more.random() < 0.7)
            made += [_hostile(more) for _ in range(more.randint(1, 3))]
        return History(seed, setup, tuple(sorted(made, key=lambda event: event.at)))

    def __str__(self) -> str:
        """Return it as Python, one line per event."""
        return printed(self)


def printed(history: Any) -> str:
    """Return a history as Python, one line per event."""
    lines = [f"    {_call(event)}," for event in history.events]
    return "\n".join(["History(", f"  {history.seed},", f"  {_call(history.setup)},", "  (", *lines, "  ),", ")"])


def _call(value: Any) -> str:
    """Return the call that makes a value, without what is as usual."""
    shown = []
    for field in fields(value):
        given = getattr(value, field.name)
        if given != field.default:
            shown.append(f"{field.name}={given!r}")
    return f"{type(value).__name__}({', '.join(shown)})"


def _event(chance: random.Random, setup: Setup, kinds: Mapping[Maker, int]) -> e.Event:
    at = round(chance.uniform(0, TROUBLED), 1)
    make = chance.choices(list(kinds), weights=list(kinds.values()))[0]
    return make(chance, setup, at)


def _some(chance: random.Random) -> float:
    """Return a duration: mostly seconds, sometimes minutes."""
    return chance.choice((2.0, 5.0, 10.0, 20.0, 45.0, 90.0, 180.0))


def _operator(chance: random.Random, setup: Setup) -> int:
    return chance.randrange(setup.operators)


def _kill(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Kill(at, code=chance.choice((137, 137, 1, 0, 143)), written=chance.random() < 0.5)


def _freeze(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Freeze(at, seconds=_some(chance))


def _hang(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Hang(at)


def _slow(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.SlowBatches(at, seconds=_some(chance), lasts=_some(chance))


def _too_large(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.TooLargeBatches(at, fits=chance.choice((1, 5, 20)), lasts=_some(chance))


def _failing(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.FailingCode(at, code=chance.choice((1, 51, 53, 54, 55)), lasts=_some(chance))


def _break_image(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    number, code, lasts = chance.choice((2, 2, 3, 1)), chance.choice((1, 51, 51)), chance.choice((0.0, 0.0, 45.0))
    at = round(EARLY + at / 4, 1)
    return e.BreakImage(at, number=number, code=code, lasts=lasts, upgrades=chance.random() < 0.7)


def _unseen_revision(chance: random.Random, setup: Setup, at: float) -> e.Event:
    at = round(LATE + at / 4, 1)
    return e.Unseen(at, fact="revision", seconds=_some(chance), operator=_operator(chance, setup))


def _lose_revisions(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.LoseRevisions(round(LATE + at / 4, 1))


def _stuck_purges(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.StuckPurges(at, hangs=chance.random() < 0.5, seconds=_some(chance))


def _purging_rewind(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Rewind(at, records=50, delete_output=True)


def _damage(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.DamageCluster(at)


def _other_words(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.OtherWords(at)


def _busy(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.BusyFleet(at, seconds=chance.choice((20.0, 60.0, 180.0)))


def _lose_node(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    part = chance.choice(PARTS)
    return e.LoseNode(at, part=part, seconds=_some(chance), removed=chance.random() < 0.2)


def _drain(chance: random.Random) -> e.Event:
    """Return a drain that the other events leave where they are, at a moment when there is a cluster."""
    at = round(chance.uniform(DRAINS, TROUBLED), 1)
    return e.Drain(at, workers=chance.random() < 0.4, seconds=_some(chance))


def _blindness(chance: random.Random) -> e.Event:
    """Return minutes in which the operators do not see a run that hangs, or commits on."""
    at, lasts = round(chance.uniform(EARLY, TROUBLED), 1), chance.choice((45.0, 180.0, 180.0, 1500.0))
    dependency: e.Dependency = chance.choice(("kafka", "cassandra"))
    return e.Blindness(at, dependency=dependency, hangs=chance.random() < 0.7, seconds=lasts)


def _mute(chance: random.Random) -> list[e.Event]:
    """Return a driver whose heartbeats do not arrive, or one that is frozen as many others are."""
    at, seconds = round(chance.uniform(EARLY, TROUBLED), 1), _some(chance)
    if chance.random() < 0.5:
        return [e.Mute(at, seconds=seconds)]
    return [e.Freeze(at, seconds=seconds), e.LostTogether(round(at + 2, 1), seconds=_some(chance))]


def _step_clock(chance: random.Random, setup: Setup) -> e.Event:
    at, ahead = round(chance.uniform(0, TROUBLED), 1), chance.choice((-7200.0, -600.0, 20.0, 600.0, 7200.0))
    return e.StepClock(at, ahead=ahead, seconds=_some(chance), operator=_operator(chance, setup))


def _expiry(chance: random.Random) -> list[e.Event]:
    """Return retention that is faster than its acceptance, and runs that may end as soon as they claim under that."""
    at = round(chance.uniform(EARLY, TROUBLED - 20), 1)
    made: list[e.Event] = [
        e.KeepExpiring(at, records=chance.choice((1, 10, 200)), seconds=chance.choice((20.0, 45.0, 90.0))),
        e.AcceptLoss(at + 1, opens=chance.random() < 0.8, seconds=90.0),
    ]
    if chance.random() < 0.7:
        made.append(e.KillAtClaim(at + chance.choice((5.0, 15.0)), code=chance.choice((137, 1))))
    return made


def _hostile(chance: random.Random) -> e.Event:
    return e.HostileRecord(round(chance.uniform(EARLY, TROUBLED), 1), kind=chance.choice(content.KINDS))


def _growth(chance: random.Random) -> list[e.Event]:
    """Return a topic that grows once or twice, and a rewind to before that."""
    at = round(chance.uniform(EARLY, TROUBLED - 20), 1)
    made: list[e.Event] = [e.GrowTopic(at)]
    if chance.random() < 0.5:
        made.append(e.GrowTopic(round(at + chance.choice((1.0, 8.0)), 1)))
    later, delete_output = round(at + chance.choice((5.0, 15.0, 25.0)), 1), chance.random() < 0.5
    if chance.random() < 0.5:
        made.append(e.RewindToTime(later, ago=chance.choice((10.0, 20.0, 40.0)), delete_output=delete_output))
    else:
        records = chance.choice((50, 300, 2000))
        made.append(e.Rewind(later, records=records, delete_output=delete_output, from_growth=chance.random() < 0.7))
    return made


def _delete_pod(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.DeletePod(at, force=chance.random() < 0.5)


def _delete_job(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.DeleteJob(at, cascade=chance.choice(("foreground", "background", "orphan")))


def _twin(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.StartTwin(at)


def _no_pods(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    reason = chance.choice(("Unschedulable", "ImagePullBackOff", "CrashLoopBackOff"))
    return e.NoPods(at, reason=reason, seconds=_some(chance))


def _fail_installs(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.FailInstalls(at, how=chance.choice(("refused", "pending")), seconds=_some(chance))


def _lose_kafka(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.LoseKafka(at, seconds=_some(chance))


def _expire(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.ExpireRecords(at, records=chance.choice((1, 20, 1000)))


def _recreate(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.RecreateTopic(at)


def _lose_cassandra(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.LoseCassandra(at, seconds=_some(chance))


def _lose_answer(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.LoseAnswer(at, call=chance.choice(("read", "insert", "swap", "swap")), applied=chance.random() < 0.6)


def _stale(chance: random.Random, setup: Setup, at: float) -> e.Event:
    return e.Stale(at, fact=_cached(chance), seconds=_some(chance), operator=_operator(chance, setup))


def _cached(chance: random.Random) -> e.Fact:
    """Return a fact that a cache may show: the fence is read at SERIAL."""
    return chance.choice([fact for fact in FACTS if fact != "fence"])


def _unseen(chance: random.Random, setup: Setup, at: float) -> e.Event:
    return e.Unseen(at, fact=chance.choice(FACTS), seconds=_some(chance), operator=_operator(chance, setup))


def _interrupt(chance: random.Random, setup: Setup, at: float) -> e.Event:
    return e.Interrupt(
        at,
        call=chance.choice(CALLS),
        when=chance.choice(("before", "after")),
        how=chance.choice(("crash", "freeze", "lost", "late")),
        seconds=_some(chance),
        operator=_operator(chance, setup),
    )


def _change_image(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.ChangeImage(at, number=chance.randrange(4))


def _resize(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Resize(at, workers=chance.randint(0, 3))


def _suspend(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Suspend(at, value=chance.random() < 0.6)


def _pause(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Pause(at, seconds=_some(chance))


def _break_spec(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.BreakSpec(at, broken=chance.random() < 0.6)


def _lose_topic(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.LoseTopic(at, missing=chance.random() < 0.5)


def _lose_reference(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.LoseReference(at, seconds=_some(chance))


def _delete(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Delete(at)


def _create(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Create(at)


def _accept(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.AcceptLoss(at)


def _rewind(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Rewind(at, records=chance.choice((1, 50, 1000)), delete_output=chance.random() < 0.5)


def _delete_rewinds(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.DeleteRewinds(at)


def _retry(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.Retry(at)


def _new_chart(chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.NewChart(at, chart=chance.choice("bc"))


def _remove_finalizer(_chance: random.Random, _setup: Setup, at: float) -> e.Event:
    return e.RemoveFinalizer(at)


KINDS: Final[dict[Maker, int]] = {
    _kill: 6, _freeze: 5, _hang: 2, _slow: 2, _too_large: 2, _failing: 3,
    _lose_node: 6, _delete_pod: 4, _delete_job: 4, _twin: 4, _no_pods: 2, _fail_installs: 3,
    _lose_kafka: 3, _expire: 3, _recreate: 1, _lose_cassandra: 4, _lose_answer: 5,
    _stale: 8, _unseen: 6, _interrupt: 20,
    _change_image: 5, _resize: 3, _suspend: 4, _pause: 3, _break_spec: 2, _lose_topic: 2, _lose_reference: 2,
    _new_chart: 2,
    _delete: 3, _remove_finalizer: 1, _create: 3, _accept: 4, _retry: 3,
    _rewind: 5, _delete_rewinds: 1,
}  # fmt: skip
"""Makers of events, and how often each one is drawn."""
TROUBLES: Final[dict[Maker, int]] = {_stuck_purges: 2, _damage: 3, _other_words: 3, _purging_rewind: 1}
"""Makers of what a cluster, a rewind and a status may meet that no other event brings."""
CHANGES: Final[dict[Maker, int]] = {
    _break_image: 5, _change_image: 2, _busy: 4, _lose_revisions: 2, _unseen_revision: 2,
}  # fmt: skip
"""Makers of what can happen to a changed spec."""
