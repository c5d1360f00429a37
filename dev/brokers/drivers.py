"""Keeps a pipeline running as the operator does: a new epoch after each end, and losses accepted as a user does."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from fencepost.contract import ExitCode, ReportedLoss
from integration.driver.support import Pipeline, Run

LOOK_SECONDS: Final = 0.5
ACCEPTED_AFTER: Final = (0.0, 10.0)
"""Seconds that a user takes to accept a loss: another leader may be elected meanwhile."""
LIVES: Final = (20.0, 240.0)
"""Seconds after which a run is killed, if it has not ended."""
KILLED: Final = 128 + signal.SIGKILL
"""Exit code of a container that was killed; another one means that the run ended just before."""


@dataclass(slots=True)
class Drivers:
    """Runs of one pipeline in a thread of its own. `ends` counts them by the verdict's reason."""

    pipeline: Pipeline
    chance: random.Random
    report: Callable[[str], None]
    ends: Counter[str] = field(default_factory=Counter)
    accepted: list[ReportedLoss] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    calm: threading.Event = field(default_factory=threading.Event)
    """Once it is set, no run is killed."""
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Start run after run until `ended`, and stop the last one."""
        try:
            while not self.ended.is_set():
                self._one(self.pipeline.start())
        except Exception as error:  # noqa: BLE001 - a thread reports what ends it
            self.failures.append(f"the drivers: {type(error).__name__}: {error}")

    def _one(self, run: Run) -> None:
        left = self.chance.uniform(*LIVES)
        while run.process.poll() is None:
            if self.ended.wait(LOOK_SECONDS):
                run.stop()
                self.ends["Stopped"] += 1
                return
            left -= LOOK_SECONDS
            if left <= 0 and not self.calm.is_set():
                self.report("kill of the driver")
                run.kill()
                if run.process.returncode == KILLED:
                    self.ends["killed"] += 1
                    return
        self._judge(run)

    def _judge(self, run: Run) -> None:
        verdict = run.verdict()
        self.ends[str(verdict.reason)] += 1
        self.report(f"the driver ended with {run.process.returncode}: {verdict.reason}: {verdict.message[:300]}")
        if run.process.returncode == ExitCode.DATA_LOSS and verdict.loss:
            report = self.pipeline.recorded(verdict.loss)
            self.ended.wait(self.chance.uniform(*ACCEPTED_AFTER))
            self.pipeline.accept(report.loss)
            self.accepted.append(report)
        elif run.process.returncode not in {ExitCode.DEPENDENCY_DOWN, ExitCode.FAILED}:
            self.failures.append(f"exit {run.process.returncode}: {verdict.reason}: {verdict.message[:500]}")
            self.ended.wait()
