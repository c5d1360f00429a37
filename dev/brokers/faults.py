"""Faults of brokers at random moments, mostly of a partition's leader; the same seed draws the same kinds and times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Final

from brokers.leaders import Replicas
from harness.faults.schedule import Draw, Pace, Schedule
from harness.waiting import eventually
from integration.kafka.brokers import Broker

SECONDS: Final = (1.0, 12.0)
"""How long one fault lasts; the controller fences a broker after three."""
BETWEEN: Final = (1.0, 8.0)
"""Seconds from one fault's start to the next one's, so that some overlap."""
OF_A_LEADER: Final = 0.7
"""Part of the faults whose broker leads the partition that was drawn."""
ALONE_WITHIN: Final = 120.0
"""Seconds until a leader without followers is alone in the ISR, on busy CPUs."""


def schedule(
    replicas: Replicas, chance: random.Random, report: Callable[[str], None], *, tails: float = 0.0
) -> Schedule:
    """Return the faults of brokers. A broker has one fault at a time.

    `tails` is the part of the faults that take an acknowledged tail: each is alone, and begins with all in sync.
    """

    def draw(chance: random.Random) -> Draw:
        return _tail(replicas, chance, report) if chance.random() < tails else _of_a_broker(replicas, chance)

    return Schedule(draw=draw, chance=chance, pace=Pace(between=BETWEEN), report=report, settle=replicas.settle)


def _of_a_broker(replicas: Replicas, chance: random.Random) -> Draw:
    kind = chance.choice(sorted(KINDS))
    partition, node = chance.randrange(1 << 16), chance.choice(replicas.cluster.brokers).node
    seconds = chance.uniform(*SECONDS)
    if chance.random() < OF_A_LEADER:
        leaders = replicas.leaders()
        node = leaders[partition % len(leaders)].node or node
    broker = replicas.broker(node)
    label = f"{kind} of broker {node} for {seconds:.1f} s"
    return Draw(kind=kind, target=str(node), label=label, act=lambda: KINDS[kind](replicas, broker, seconds))


def _tail(replicas: Replicas, chance: random.Random, report: Callable[[str], None]) -> Draw:
    kind = chance.choice(("crash", "pause", "deaf"))
    alone, gone = chance.uniform(0.5, 6.0), chance.uniform(*SECONDS)
    own = random.Random(chance.random())

    def lose() -> None:
        number, first = own.choice(sorted(replicas.leaders().items()))
        leader = replicas.broker(first.node or 1)
        report(f"tail of partition {number}: broker {leader.node} alone for {alone:.1f} s, then {kind}")
        _lose_tail(replicas, number, leader, kind, alone=alone, gone=gone)

    return Draw(kind=f"tail-{kind}", target="all", label=f"tail, by {kind}", act=lose, is_alone=True)


def _lose_tail(replicas: Replicas, number: int, leader: Broker, kind: str, *, alone: float, gone: float) -> None:
    """Let a leader acknowledge alone for some seconds, and elect one that has not what it acknowledged.

    The old leader is killed, frozen, or cut from the controller: then it leads on for those who do not know better.
    """
    followers = [broker for broker in replicas.cluster.brokers if broker is not leader]
    for follower in followers:
        follower.cut(to=leader.port)
    try:
        eventually(
            f"broker {leader.node} to be alone",
            lambda: replicas.leaders()[number].in_sync == (leader.node,),
            seconds=ALONE_WITHIN,
        )
        time.sleep(alone)
        UNDONE[kind][0](leader)
        try:
            eventually(
                f"another leader of partition {number}",
                lambda: replicas.leaders()[number].node not in {None, leader.node},
                seconds=ALONE_WITHIN,
            )
            time.sleep(gone)
        finally:
            UNDONE[kind][1](leader)
    finally:
        for follower in followers:
            follower.heal(to=leader.port)


def _deafen(broker: Broker) -> None:
    broker.cut(to=broker.controller[1])


def _hear(broker: Broker) -> None:
    broker.heal(to=broker.controller[1])


UNDONE: Final[Mapping[str, tuple[Callable[[Broker], None], Callable[[Broker], None]]]] = {
    "crash": (Broker.crash, Broker.start),
    "cut": (Broker.cut, Broker.heal),
    "deaf": (_deafen, _hear),
    "pause": (Broker.pause, Broker.resume),
    "stop": (Broker.stop, Broker.start),
}
"""What begins a fault of one broker, and what ends it. `deaf` is cut from the controller alone."""


def _of_one(kind: str) -> Callable[[Replicas, Broker, float], None]:
    begin, end = UNDONE[kind]

    def inject(_: Replicas, broker: Broker, seconds: float) -> None:
        begin(broker)
        try:
            time.sleep(seconds)
        finally:
            end(broker)

    return inject


def _lag(replicas: Replicas, broker: Broker, seconds: float) -> None:
    """Keep a broker from fetching from another one, so that it leaves the ISR of what that one leads."""
    other = replicas.broker(broker.node % len(replicas.cluster.brokers) + 1)
    broker.cut(to=other.port)
    try:
        time.sleep(seconds)
    finally:
        broker.heal(to=other.port)


KINDS: Final[Mapping[str, Callable[[Replicas, Broker, float], None]]] = {
    **{kind: _of_one(kind) for kind in UNDONE},
    "lag": _lag,
}
