"""The cheapest schedule of workers that keeps a time lag, found by one who knows the whole trace.

Dynamic programming from the end of the trace: the state is the number of workers and the age of the oldest record that
waits, on a grid; the value between two points of it is interpolated.  Partitions are taken as one, which costs the
planner nothing: it is never dearer than with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.autoscale.traces import MOST, STEP, Trace
from fencepost_cli.history.queueing import Costs

PLAN: Final = 4
"""Steps of a trace in one step of the planner: as long as a worker takes to start."""
MISSED: Final = 1e4
"""Workers' steps that one step above the target costs."""
RESCALE: Final = 120.0
"""Seconds of a worker that it costs to add or to remove one: images, JVMs and Python start, and nodes are paid for by
the minute.  Without it the planner changes the number every twenty seconds.
"""
Floats = npt.NDArray[np.floating[Any]]


def cheapest(trace: Trace, target: float, excused: Sequence[bool], costs: Costs | None = None) -> list[int]:
    """Return the number of workers in each step of the trace; steps that are excused may miss the target."""
    costs = costs or Costs()
    arrived = np.array([sum(each) for each in trace.arrived]).reshape(-1, PLAN).sum(axis=1)
    total = np.concatenate([[0.0], np.cumsum(arrived)])
    seconds, limit = STEP * PLAN, target - costs.batch - STEP
    times = np.arange(len(total)) * seconds
    may = [any(excused[each : each + PLAN]) for each in range(0, len(excused), PLAN)]
    ages = np.concatenate([np.linspace(0, limit, 15), limit + np.geomspace(seconds, times[-1], 30)])
    counts = np.arange(1, MOST + 1)
    changed = RESCALE / seconds * np.abs(counts[:, None] - counts[None, :])[:, :, None]
    value = np.zeros((MOST, len(ages)))
    choices: list[Floats] = []
    for at in range(len(arrived) - 1, -1, -1):
        missed = 0.0 if may[at] else MISSED
        begun = np.interp(times[at] - ages, times, total)
        steady = _after(begun, counts * trace.rate * seconds, total, times, at)
        lost = trace.rate * costs.batch / 2
        kept = np.empty((MOST, MOST, len(ages)))  # by workers before, after, and age
        for after in range(MOST):
            here = np.array([np.interp(age, ages, value[after]) for age in steady])
            here = here + missed * (steady > limit) + after + 1
            kept[:, after] = here[np.minimum(np.arange(MOST), after)]
            if after + 1 < MOST:
                capacity = np.maximum(0, (after + 1) * trace.rate * seconds - lost * (counts[after + 1 :] - after - 1))
                fewer = _after(begun, capacity, total, times, at)
                values = np.interp(fewer, ages, value[after]) + missed * (fewer > limit) + after + 1
                kept[after + 1 :, after] = values
        kept += changed
        choices.append(kept)
        value = kept.min(axis=1)
    return _played(choices[::-1], trace, costs, ages, total, times)


def _after(begun: Floats, capacity: Floats, total: Floats, times: Floats, at: int) -> Floats:
    """Return the ages after a step, by capacity and age before."""
    reached = np.minimum(begun[None, :] + capacity[:, None], total[at + 1])
    ages: Floats = np.maximum(0.0, times[at + 1] - np.interp(reached, total, times))
    return np.where(reached >= total[at + 1], 0.0, ages)


def _played(
    choices: Sequence[Floats], trace: Trace, costs: Costs, ages: Floats, total: Floats, times: Floats
) -> list[int]:
    """Return the choices of one who begins with one worker and nothing that waits."""
    workers, age, seconds, found = 1, 0.0, STEP * PLAN, []
    for at, kept in enumerate(choices):
        options = [np.interp(age, ages, kept[workers - 1, after]) for after in range(MOST)]
        after = int(np.argmin(options)) + 1
        ready = min(workers, after) * trace.rate * seconds
        ready -= max(0, workers - after) * trace.rate * costs.batch / 2
        begun = np.interp(times[at] - age, times, total)
        age = float(_after(np.array([begun]), np.array([max(0.0, ready)]), total, times, at)[0, 0])
        workers = after
        found += [workers] * PLAN
    return found
