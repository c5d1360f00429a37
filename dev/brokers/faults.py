"""Faults of brokers at random moments, mostly of a partition's leader; the same seed draws the same kinds and times."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException

from harness.waiting import eventually
from integration.kafka.brokers import Broker, Cluster

SECONDS: Final = (1.0, 12.0)
"""How long one fault lasts; the controller fences a broker after three."""
BETWEEN: Final = (1.0, 8.0)
"""Seconds from one fault's start to the next one's, so that some overlap."""
OF_A_LEADER: Final = 0.7
"""Part of the faults whose broker leads the partition that was drawn."""
ALONE_WITHIN: Final = 120.0
"""Seconds until a leader without followers is alone in the ISR, on busy CPUs."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition, None without a leader, and the nodes that are in sync."""

    node: int | None
    in_sync: tuple[int, ...]


@dataclass(slots=True)
class Faults:
    """Draws and injects faults on the brokers of one topic. `injected` counts them by kind."""

    cluster: Cluster
    topic: str
    chance: random.Random
    report: Callable[[str], None]
    kinds: Mapping[str, Callable[[Faults, Broker, float], None]]
    tails: float = 0.0
    """Part of the faults that take an acknowledged tail: see `lose_tail`."""
    injected: Counter[str] = field(default_factory=Counter)
    _busy: set[int] = field(default_factory=set)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _running: list[threading.Thread] = field(default_factory=list)

    def inject(self, count: int, *, until: Callable[[], bool]) -> None:
        """Inject so many faults, then wait for the end of the last ones; `until` ends it early."""
        while sum(self.injected.values()) < count and not until():
            if self.chance.random() < self.tails:
                self.settle()
                self._lose_tail()
            else:
                self._begin_one()
            time.sleep(self.chance.uniform(*BETWEEN))
        self.settle()

    def leaders(self) -> dict[int, Leader]:
        """Return each partition's leader, as the brokers that answer know it."""
        while True:
            try:
                partitions = self.cluster.admin.list_topics(self.topic, timeout=5).topics[self.topic].partitions
            except KafkaException:
                continue
            return {
                number: Leader(found.leader if found.leader > 0 else None, tuple(sorted(found.isrs)))
                for number, found in partitions.items()
            }

    def broker(self, node: int) -> Broker:
        """Return a node's broker."""
        return self.cluster.brokers[node - 1]

    def _begin_one(self) -> None:
        kind = self.chance.choice(sorted(self.kinds))
        partition, node = self.chance.randrange(1 << 16), self.chance.choice(self.cluster.brokers).node
        seconds = self.chance.uniform(*SECONDS)
        if self.chance.random() < OF_A_LEADER:
            leaders = self.leaders()
            node = leaders[partition % len(leaders)].node or node
        with self._guard:
            if node in self._busy:
                return
            self._busy.add(node)
        self.injected[kind] += 1
        self.report(f"{kind} of broker {node} for {seconds:.1f} s")
        thread = threading.Thread(target=self._one, args=(kind, self.broker(node), seconds), daemon=True)
        thread.start()
        self._running.append(thread)

    def _one(self, kind: str, broker: Broker, seconds: float) -> None:
        try:
            self.kinds[kind](self, broker, seconds)
        finally:
            with self._guard:
                self._busy.discard(broker.node)

    def settle(self) -> None:
        """Wait for the end of all faults, and until every partition has all its replicas in sync."""
        for thread in self._running:
            thread.join()
        self._running.clear()
        nodes = tuple(broker.node for broker in self.cluster.brokers)
        eventually(
            "all replicas are in sync",
            lambda: all(found.node and found.in_sync == nodes for found in self.leaders().values()),
            seconds=300,
        )

    def _lose_tail(self) -> None:
        """Let a leader acknowledge alone, and elect one that has not what it acknowledged.

        The old leader is killed, frozen, or cut from the controller: then it leads on for those who do not know better.
        """
        number, first = self.chance.choice(sorted(self.leaders().items()))
        leader = self.broker(first.node or 1)
        followers = [broker for broker in self.cluster.brokers if broker is not leader]
        alone, gone = self.chance.uniform(0.5, 6.0), self.chance.uniform(*SECONDS)
        kind = self.chance.choice(("crash", "pause", "deaf"))
        self.injected[f"tail-{kind}"] += 1
        self.report(f"tail of partition {number}: broker {leader.node} alone for {alone:.1f} s, then {kind}")
        for follower in followers:
            follower.cut(to=leader.port)
        try:
            eventually(
                f"broker {leader.node} to be alone",
                lambda: self.leaders()[number].in_sync == (leader.node,),
                seconds=ALONE_WITHIN,
            )
            time.sleep(alone)
            UNDONE[kind][0](leader)
            try:
                eventually(
                    f"another leader of partition {number}",
                    lambda: self.leaders()[number].node not in {None, leader.node},
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


def _of_one(kind: str) -> Callable[[Faults, Broker, float], None]:
    begin, end = UNDONE[kind]

    def inject(_: Faults, broker: Broker, seconds: float) -> None:
        begin(broker)
        try:
            time.sleep(seconds)
        finally:
            end(broker)

    return inject


def _lag(faults: Faults, broker: Broker, seconds: float) -> None:
    """Keep a broker from fetching from another one, so that it leaves the ISR of what that one leads."""
    other = faults.broker(broker.node % len(faults.cluster.brokers) + 1)
    broker.cut(to=other.port)
    try:
        time.sleep(seconds)
    finally:
        broker.heal(to=other.port)


KINDS: Final[Mapping[str, Callable[[Faults, Broker, float], None]]] = {
    **{kind: _of_one(kind) for kind in UNDONE},
    "lag": _lag,
}
