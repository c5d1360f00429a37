"""One campaign: load, users and faults side by side, then peace, and what the checker finds."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from campaign.checker import differences, expected, places
from campaign.diagnosis import of_now, of_places
from campaign.faults import schedule
from campaign.operators import two_operators
from campaign.producer import Load
from campaign.users import REWIND, Users
from campaign.watch import Watch
from campaign.world import World, world
from fencepost.fence import FenceError
from fencepost_cli.history.checks import check_history
from flights.sink import CassandraDownError
from harness.background import beside
from harness.kafka_log import Record, read_log
from harness.pipelines import helm_revisions, summary
from harness.waiting import NotInTimeError, eventually
from testbed.environment import Environment

DRAIN_SECONDS: Final = 600.0
"""How long the pipeline may take for what is left once the last fault is over."""
GONE_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was seen. `broken` are the promises that do not hold, each as a sentence."""

    broken: tuple[str, ...]
    records: int
    letters: int
    epochs: int
    commits: int
    faults: Counter[str]
    missed: Counter[str]
    actions: Counter[str]


def run(
    environment: Environment, *, seed: int, minutes: float, count: int | None, report: Callable[[str], None]
) -> Result:
    """Play one campaign for some minutes, or until `count` faults were injected.

    Raises KubectlError, NodeError, LoadError where the testbed itself does not work.
    """
    chance = random.Random(seed)
    with world(environment, seed) as made, two_operators(made.kubectl):
        load = Load(made.bootstrap, made.topic, random.Random(chance.random()))
        users = Users(made, load, random.Random(chance.random()), report)
        faults = schedule(made, random.Random(chance.random()), report)
        watch = Watch(made, load, faults, report)
        users.apply()
        made.pipeline.wait_ready()
        report("the pipeline is Ready: load, users and faults begin")
        end = time.monotonic() + minutes * 60
        with beside(watch.look, name="watch"):
            with load.flowing(), beside(users.act, name="users"):
                faults.inject(until=lambda: time.monotonic() > end, count=count)
            users.apply(suspend=False)
            report("peace: no record, no fault and no user from now on")
            log = read_log(made.bootstrap, made.topic)
            stuck = [*_drained(made, log), *_recovered(made)]
            if stuck:
                _report(of_now(made, faults), report)
        broken = [*users.failures, *watch.broken, *stuck]
        with made.cassandra() as opened:
            found, wanted, changes = made.output(opened), expected(log), made.changes(opened)
        history = check_history(changes)
        broken += [*differences(found, wanted), *history.violations]
        wall = time.time() - time.monotonic()
        _report(of_places(places(found, wanted), changes, faults.since(0.0), topic=made.topic, monotonic=wall), report)
        broken += _left_over(made)
    return Result(
        broken=tuple(broken),
        records=len(log),
        letters=len(wanted.letters),
        epochs=history.last_epoch,
        commits=history.commits,
        faults=faults.injected,
        missed=faults.missed,
        actions=users.acted,
    )


def _report(lines: Iterable[str], report: Callable[[str], None]) -> None:
    for line in lines:
        report(f"  {line}")


def _recovered(made: World) -> list[str]:
    """Return when the pipeline is Ready again, or what to report when it is not."""
    try:
        made.pipeline.wait_ready(seconds=DRAIN_SECONDS)
    except NotInTimeError as error:
        return [f"not Ready after the last fault: {error}"]
    return []


def _drained(made: World, log: list[Record]) -> list[str]:
    """Return when each record of the log is behind the committed offsets, or what to report when it is not."""
    ends: dict[str, int] = {}
    for record in log:
        key = f"{made.topic}/{record.partition}"
        ends[key] = max(ends.get(key, 0), record.offset + 1)

    def drained() -> bool:
        left = _left(made, ends)
        assert not left, f"records to go: {left}; {summary(made.pipeline.object())}"
        return True

    try:
        eventually("everything is committed", drained, seconds=DRAIN_SECONDS, pause=2)
    except NotInTimeError as error:
        return [str(error)]
    return []


def _left(made: World, ends: dict[str, int]) -> dict[str, Any]:
    try:
        with made.cassandra() as opened:
            row = made.fence(opened)
    except (CassandraDownError, FenceError) as error:
        return {"Cassandra": str(error)}
    offsets = row.offsets if row is not None else {}
    return {key: end - offsets.get(key, 0) for key, end in ends.items() if offsets.get(key, 0) < end}


def _left_over(made: World) -> list[str]:
    """Delete the pipeline and its rewinds, whose Jobs stay with them; return what is there of it afterwards."""
    made.pipeline.delete(seconds=GONE_SECONDS)
    made.kubectl.run("delete", REWIND, "--all", f"--timeout={GONE_SECONDS:.0f}s", seconds=GONE_SECONDS + 10)

    def gone() -> bool:
        left = [*made.pipeline.owned(), *(one["metadata"]["name"] for one in helm_revisions(made.kubectl, "campaign"))]
        assert not left, f"left over: {', '.join(left)}"
        return True

    try:
        eventually("nothing is left over", gone, seconds=GONE_SECONDS)
    except NotInTimeError as error:
        return [str(error)]
    return []
