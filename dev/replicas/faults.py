"""Faults at random moments, several at once, each for some seconds; the same seed draws the same faults."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from replicas.nodes import Node, NodeError, Ring

SECONDS: Final = (0.5, 6.0)
"""How long one fault lasts."""
BETWEEN: Final = (0.2, 4.0)
"""Seconds from one fault's start to the next one's, so that some overlap."""
CLOCKS: Final = (-600.0, -60.0, -5.0, -0.3, 0.3, 5.0, 60.0, 600.0)
"""Seconds that a node's clock is set apart."""


@dataclass(slots=True)
class Faults:
    """Draws and injects faults on a ring. `injected` counts them by kind."""

    ring: Ring
    chance: random.Random
    told: Callable[[str], None]
    injected: Counter[str] = field(default_factory=Counter)
    _busy: set[str] = field(default_factory=set)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def inject(self, count: int, *, until: Callable[[], bool]) -> None:
        """Inject so many faults, then wait for the end of the last ones; `until` ends it early."""
        running: list[threading.Thread] = []
        while sum(self.injected.values()) < count and not until():
            running = [thread for thread in running if thread.is_alive()]
            kind = self.chance.choice(sorted(KINDS))
            node = self.chance.choice(self.ring.nodes)
            seconds = self.chance.uniform(*SECONDS)
            seed = self.chance.random()
            pause = self.chance.uniform(*BETWEEN)
            if self._reserve(node):
                self.injected[kind] += 1
                self.told(f"{kind} of {node.name[-1]} for {seconds:.1f} s")
                thread = threading.Thread(target=self._one, args=(kind, node, seconds, seed), daemon=True)
                thread.start()
                running.append(thread)
            time.sleep(pause)
        for thread in running:
            thread.join()

    def _reserve(self, node: Node) -> bool:
        with self._guard:
            if node.name in self._busy:
                return False
            self._busy.add(node.name)
            return True

    def _one(self, kind: str, node: Node, seconds: float, seed: float) -> None:
        try:
            KINDS[kind](self.ring, node, seconds, random.Random(seed))
        except NodeError as error:
            self.told(f"{kind} of {node.name[-1]} ended early: {error}")
        finally:
            with self._guard:
                self._busy.discard(node.name)


def _killed(_: Ring, node: Node, seconds: float, __: random.Random) -> None:
    node.kill()
    time.sleep(seconds)
    node.start()


def _restarted(_: Ring, node: Node, __: float, ___: random.Random) -> None:
    node.stop()
    node.start()


def _paused(_: Ring, node: Node, seconds: float, __: random.Random) -> None:
    node.pause()
    try:
        time.sleep(seconds)
    finally:
        node.resume()


def _partitioned(ring: Ring, node: Node, seconds: float, chance: random.Random) -> None:
    """Cut a node from some others, in both directions or in one."""
    others = [other for other in ring.nodes if other is not node]
    far = chance.sample(others, k=chance.randint(1, len(others)))
    node.cut_from(other.address for other in far)
    if chance.random() < 0.5:
        for other in far:
            if other.pid:
                other.cut_from([node.address])
    _healed(ring, [node, *far], seconds)


def _unreachable(ring: Ring, node: Node, seconds: float, __: random.Random) -> None:
    """Cut a node from the clients: it still works for the others, and its answers are lost."""
    node.cut_from([ring.gateway])
    _healed(ring, [node], seconds)


def _lossy(ring: Ring, node: Node, seconds: float, chance: random.Random) -> None:
    node.lose(chance.uniform(0.05, 0.5))
    _healed(ring, [node], seconds)


def _slow(ring: Ring, node: Node, seconds: float, __: random.Random) -> None:
    node.slow_down("64kbit")
    _healed(ring, [node], seconds)


def _clock(_: Ring, node: Node, seconds: float, chance: random.Random) -> None:
    node.set_clock(chance.choice(CLOCKS))
    time.sleep(seconds)
    if chance.random() < 0.5:
        node.set_clock(0.0)


def _healed(_: Ring, nodes: list[Node], seconds: float) -> None:
    time.sleep(seconds)
    for node in nodes:
        node.heal()


KINDS: Final[Mapping[str, Callable[[Ring, Node, float, random.Random], None]]] = {
    "clock": _clock,
    "kill": _killed,
    "loss": _lossy,
    "partition": _partitioned,
    "pause": _paused,
    "restart": _restarted,
    "slowness": _slow,
    "unreachable": _unreachable,
}
