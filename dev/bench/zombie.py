"""Seconds from SIGSTOP of the driver to the next commit, which is its successor's.

A frozen driver looks alive to Kubernetes and to Spark; only that nothing is committed gives it away, so most of this
is `restart.stallTimeout`, which is given here as a user who wants to be quick would give it.
"""

from __future__ import annotations

from typing import Final

from bench.figures import Result, Sample
from bench.recovery import RATE, Recovery, known, recovery
from bench.stage import committed, source, staged, wait_for_commit
from flights.console import Console
from harness.kubectl import KubectlError
from harness.nodes import NodeError
from harness.waiting import NotInTimeError

FREEZES: Final = 3
STALL_TIMEOUT: Final = "15s"
STEPS: Final = (("notice", "killed", "fenced"), ("new driver", "fenced", "claimed"), ("commit", "claimed", "committed"))


def measure(console: Console, *, freezes: int = FREEZES) -> Result:
    """Freeze the driver over and over; each stays frozen until Kubernetes ends it."""
    found: list[Recovery] = []
    notes: list[str] = []
    with staged() as scene:
        feed = source(scene)
        feed.burst(10_000)
        scene.apply({"restart": {"stallTimeout": STALL_TIMEOUT}})
        wait_for_commit(scene)
        with feed.flowing(RATE):
            for number in range(freezes):
                try:
                    row = wait_for_commit(scene, past=committed(scene.fence()))
                    frozen = scene.signal_driver("STOP")
                    after = committed(scene.fence())
                    row = wait_for_commit(scene, past=after, epoch=row.epoch + 1)
                    found.append(recovery(scene, frozen, row.epoch))
                    total = found[-1].between("killed", "committed")
                    console.line(f"zombie: {number + 1} of {freezes}: {total or 0:.1f} s")
                except (NotInTimeError, KubectlError, NodeError) as error:
                    notes.append(f"ended after {number}: {error}")
                    console.line(f"zombie: {notes[-1]}")
                    break
    return Result(
        "zombie",
        [
            Sample("freeze to commit", "s", known(found, "killed", "committed")),
            *(Sample(f"  {name}", "s", known(found, first, last)) for name, first, last in STEPS),
        ],
        {"stallTimeout": STALL_TIMEOUT, "rows a second": RATE},
        notes,
    )
