"""A driver that is killed at any call to a store, before or after its effect: a successor's state is exact.

Also lost answers, drivers that run on after a takeover, rewinds, and collectors, in random histories with a seed each.
`HISTORIES` and `SEED` in the environment play more of them, or one.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterable

import pytest

from fencepost.fence import FenceError, FenceUnavailable
from fencepost.fence.memory import no_fault
from fencepost.state import chunks, file_ids
from fencepost.state.errors import CheckpointError, EpochOver
from fencepost.state.progress import unpack_committed
from present import present
from unit.state.world import GRACE, KEY, STORES, Driver, Killed, World, no_answer, total

BATCHES = 7


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 64)
    monkeypatch.setattr(file_ids, "RANGE", 16)


def finish(world: World, driver: Driver, batches: int = BATCHES) -> None:
    """Run without faults until the driver has committed so many batches; then compare all."""
    world.fault = no_fault
    for _ in driver.steps:
        if driver.committed >= batches:
            break
    compare(world)
    # An hour of idleness later, nothing is left of what is not reached.
    driver.collect()
    world.clock.sleep(GRACE + 1)
    driver.collect()
    world.check()
    assert world.chunks.files <= world.reached() | driver.serving


def compare(world: World) -> None:
    """Compare the output of each committed batch, and the state, with a plain sum over the records."""
    last = present(unpack_committed(world.row.checkpoint)).batch
    for store in range(STORES):
        assert world.output[last, store][1] == total(store, world.row.offsets[KEY])


def killing(at: int) -> World:
    """Return a world in which the process is killed at a call, counted from 1."""
    world, calls = World(random.Random(1)), 0

    def fault(call: str) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise Killed(call)

    world.fault = fault
    return world


def play(world: World, driver: Driver, batches: int = BATCHES) -> None:
    """Run, and collect between the batches."""
    while driver.committed < batches:
        before = driver.committed
        for _ in driver.steps:
            if driver.committed > before:
                break
        world.clock.sleep(GRACE / 2)
        driver.collect()


def calls_of_an_undisturbed_run() -> int:
    world, calls = World(random.Random(1)), 0

    def count(_call: str) -> None:
        nonlocal calls
        calls += 1

    world.fault = count
    play(world, world.take_over())
    return calls


def test_a_driver_killed_at_any_call_loses_and_doubles_nothing() -> None:
    calls = calls_of_an_undisturbed_run()
    assert calls > 150
    for at in range(1, calls + 1):
        world = killing(at)
        try:
            play(world, world.take_over())
        except Killed:
            world.fault = no_fault
        world.check()
        finish(world, world.take_over())


def test_a_lost_answer_at_any_call_is_settled_or_ends_the_run() -> None:
    calls = calls_of_an_undisturbed_run()
    for at in range(1, calls + 1):
        world, seen = World(random.Random(1)), 0

        def fault(call: str, at: int = at) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                no_answer(call)

        world.fault = fault
        driver = world.take_over()
        try:
            play(world, driver)
        except FenceError:
            driver = world.take_over()
        finish(world, driver, driver.committed + 2)


def test_an_outage_at_any_call_ends_the_run_and_leaves_what_a_successor_needs() -> None:
    calls = calls_of_an_undisturbed_run()
    for at in range(1, calls + 1, 3):
        world, seen = World(random.Random(1)), 0

        def fault(call: str, at: int = at) -> None:
            nonlocal seen
            seen += 1
            if seen >= at:
                no_answer(call)

        world.fault = fault
        try:
            play(world, world.take_over())
        except FenceUnavailable:
            world.fault = no_fault
        world.check()
        finish(world, world.take_over())


def history(seed: int) -> None:
    """Play one: drivers, old ones too, in random turns, with faults; then finish and compare."""
    dice = random.Random(seed)
    world = World(dice)
    drivers = [world.take_over()]
    rate = dice.choice([0, 0.01, 0.05])

    def fault(call: str) -> None:
        if dice.random() < rate:
            if dice.random() < 0.3:
                raise Killed(call)
            no_answer(call)

    world.fault = fault
    for _ in range(dice.randrange(50, 300)):
        world.clock.sleep(dice.choice([0, 0, 1, GRACE / 3]))
        with contextlib.suppress(Killed, FenceError):
            event(world, drivers, dice)
        world.check()
    world.fault = no_fault
    finish(world, world.take_over(), 3)


def event(world: World, drivers: list[Driver], dice: random.Random) -> None:
    match dice.choices(("step", "old", "collect", "replace", "snapshot", "drop", "rewind"), (80, 20, 6, 3, 6, 1, 1))[0]:
        case "step":
            step(world, drivers[-1])
        case "old":
            step(world, dice.choice(drivers))
        case "collect":
            driver = dice.choice(drivers)
            driver.collect()
        case "replace":
            drivers.append(world.take_over())
        case "snapshot":
            world.snapshot()
        case "drop" if world.snapshots:
            del world.snapshots[dice.choice(sorted(world.snapshots))]
        case "rewind" if world.snapshots:
            drivers.append(world.rewind(world.snapshots[dice.choice(sorted(world.snapshots))]))


def step(world: World, driver: Driver) -> None:
    """Let a driver do some calls; only one that was replaced may find that files are gone."""
    try:
        for _ in range(world.dice.randrange(1, 12)):
            if next(driver.steps, driver) is driver:
                return
    except (EpochOver, FenceError, Killed):
        return
    except CheckpointError:
        if driver.epoch == world.row.epoch:
            raise


def seeds() -> Iterable[int]:
    if seed := os.environ.get("SEED"):
        return [int(seed)]
    return range(int(os.environ.get("HISTORIES", "150")))


def test_random_histories() -> None:
    for seed in seeds():
        try:
            history(seed)
        except Exception as error:
            raise AssertionError(f"SEED={seed}: {type(error).__name__}: {error}") from error
