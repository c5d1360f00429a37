"""What is done to the nodes of a ring, each fault for some seconds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Final

from harness.faults.clocks import OFFSETS
from harness.faults.schedule import Draw, Pace, Schedule
from replicas.nodes import Node, NodeError, Ring

SECONDS: Final = (0.5, 6.0)
"""How long one fault lasts."""
BETWEEN: Final = (0.2, 4.0)
"""Seconds from one fault's start to the next one's, so that some overlap."""


def schedule(ring: Ring, chance: random.Random, report: Callable[[str], None]) -> Schedule:
    """Return the faults of a ring. A node has one fault at a time."""

    def draw(chance: random.Random) -> Draw:
        kind = chance.choice(sorted(KINDS))
        node = chance.choice(ring.nodes)
        seconds = chance.uniform(*SECONDS)
        own = random.Random(chance.random())
        label = f"{kind} of {node.name[-1]} ({seconds:.1f} s)"
        return Draw(kind=kind, target=node.name, label=label, act=lambda: KINDS[kind](ring, node, seconds, own))

    return Schedule(draw=draw, chance=chance, pace=Pace(between=BETWEEN), report=report, misses=(NodeError,))


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
    node.set_clock(chance.choice(OFFSETS))
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
