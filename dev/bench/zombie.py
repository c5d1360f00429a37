"""Seconds from SIGSTOP of the driver to the next commit, which is its successor's.

A frozen driver looks alive to Kubernetes and to Spark; only that nothing is committed gives it away, so most of this
is `restart.stallTimeout`, which is given here as a user who wants to be quick would give it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.figures import Result, Sample
from bench.recovery import RATE, known, recoveries
from bench.stage import source, staged, wait_for_commit
from flights.console import Console

FREEZES: Final = 3
STALL_TIMEOUT: Final = "15s"
STEPS: Final = (("notice", "killed", "fenced"), ("new driver", "fenced", "claimed"), ("commit", "claimed", "committed"))


def measure(console: Console, *, freezes: int = FREEZES) -> Result:
    """Freeze the driver over and over; each stays frozen until Kubernetes ends it."""
    with staged() as scene:
        feed = source(scene)
        feed.burst(10_000)
        scene.apply({"restart": {"stallTimeout": STALL_TIMEOUT}})
        wait_for_commit(scene)
        with feed.flowing(RATE):
            found, notes = recoveries("zombie", scene, console, partial(scene.signal_driver, "STOP"), times=freezes)
    return Result(
        "zombie",
        [
            Sample("freeze to commit", "s", known(found, "killed", "committed")),
            *(Sample(f"  {name}", "s", known(found, first, last)) for name, first, last in STEPS),
        ],
        {"stallTimeout": STALL_TIMEOUT, "rows a second": RATE},
        notes,
    )
