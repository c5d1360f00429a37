"""Loads of half a day, generated from a seed: day curves, bursts, backlogs, and partitions of unequal load."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

STEP: Final = 5.0
"""Seconds."""
LENGTH: Final = 12 * 3600
MOST: Final = 12
"""Workers."""
KINDS: Final = ("day curve", "bursts", "backlogs", "skewed partitions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Records that arrive in each partition in each step, and what one worker does, in records per second."""

    name: str
    rate: float
    partitions: Sequence[str]
    arrived: Sequence[Sequence[float]]


def traces(count: int) -> list[Trace]:
    """Return so many traces, of each kind in turn."""
    return [trace(KINDS[seed % len(KINDS)], seed) for seed in range(count)]


def trace(kind: str, seed: int) -> Trace:
    """Return a trace."""
    dice = random.Random(f"{kind} {seed}")
    rate = 10 ** dice.uniform(2.5, 4.5)
    load = {"day curve": _day, "bursts": _bursts, "backlogs": _backlogs, "skewed partitions": _skewed}[kind](dice)
    noise, steps, shares = 0.0, [], _shares(dice) if kind == "skewed partitions" else [1.0]
    spread = dice.uniform(0.02, 0.08)
    for place in range(int(LENGTH / STEP)):
        noise = 0.7 * noise + dice.gauss(0, spread)
        records = max(0.0, load(place * STEP) * (1 + noise)) * rate * STEP
        steps.append([records * share for share in shares])
    return Trace(name=f"{kind} {seed}", rate=rate, partitions=[f"t/{key}" for key in range(len(shares))], arrived=steps)


Load = Callable[[float], float]
"""What arrives at a moment, in what workers do."""


def _day(dice: random.Random) -> Load:
    peak, trough, phase = dice.uniform(3, 9.5), dice.uniform(0.1, 0.4), dice.uniform(0, 2 * math.pi)
    sharp = dice.uniform(0.7, 1.8)

    def load(at: float) -> float:
        height: float = ((1 + math.sin(2 * math.pi * at / LENGTH + phase)) / 2) ** sharp
        return peak * (trough + (1 - trough) * height)

    return load


def _bursts(dice: random.Random) -> Load:
    base, found, at = dice.uniform(0.6, 3), [], 0.0
    while (at := at + dice.expovariate(1 / 4800)) < LENGTH:
        lasts, high, ramp = dice.uniform(300, 2400), dice.uniform(1.5, 4) * base, dice.uniform(1, 90)
        found.append((at, at + lasts, min(high, MOST - 2) - base, ramp))
        at += lasts

    def load(at: float) -> float:
        return base + sum(high * min(1.0, (at - begin) / ramp) for begin, end, high, ramp in found if begin <= at < end)

    return load


def _backlogs(dice: random.Random) -> Load:
    usual = _day(dice)
    first = dice.uniform(0, 1800) * dice.uniform(1, 5)  # what waits at the begin, in seconds of a worker
    at, found = 0.0, [(0.0, first)]
    while (at := at + dice.expovariate(1 / 9000)) < LENGTH:
        found.append((at, dice.uniform(300, 1800) * dice.uniform(1, 6)))

    def load(at: float) -> float:
        return usual(at) + sum(size / 30 for begin, size in found if begin <= at < begin + 30)

    return load


def _skewed(dice: random.Random) -> Load:
    return _day(dice) if dice.random() < 0.5 else _bursts(dice)


def _shares(dice: random.Random) -> list[float]:
    weights = [1 / (place + 1) ** dice.uniform(0.8, 1.8) for place in range(6)]
    return [each / sum(weights) for each in weights]
