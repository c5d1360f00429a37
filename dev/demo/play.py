"""The acts: load, apply, watch, kill, watch the recovery, account for every row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from demo.example import Account, Example
from demo.scene import EXAMPLES, Killed, Scene
from demo.watching import Look, Progress, StatusWatch
from fencepost_cli.history.checks import History, check_history
from flights.console import Console
from flights.history import HistoryRow, commits
from flights.ledger import Ledger
from flights.loader import Loader

LOOK_SECONDS: Final = 0.4
FIRST_COMMIT_SECONDS: Final = 300.0
RECOVERY_SECONDS: Final = 180.0
QUIET_SECONDS: Final = 120.0
"""A run that commits nothing for so long, with records to go, has failed."""


class DemoError(Exception):
    """Something that was waited for did not come, or what came is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Amount and speed. `rate` in records per second; shares are of all records."""

    rows: int
    rate: float
    backlog: float = 0.3
    """Share that is in Kafka before the pipeline is applied."""
    kill_at: float = 0.5
    """Share that is committed when the driver is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result. Times in seconds."""

    account: Account
    history: History
    to_first_commit: float
    to_recover: float
    gaps_allowed: int = 1
    """Each kill may leave one change of the fence out of its history."""

    @property
    def ok(self) -> bool:
        """Whether the output is right and every commit was in order."""
        return self.account.ok and self.history.ok and self.history.gaps <= self.gaps_allowed


@dataclass(slots=True)
class Play:
    """One performance on a stage that is set."""

    scene: Scene
    example: Example
    console: Console
    plan: Plan
    ledger: Ledger = field(init=False)
    _heard: str = field(init=False, default="")
    _failure: list[BaseException] = field(init=False, default_factory=list)
    _stop: threading.Event = field(init=False, default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.scene.topics[0], self.example.feed.name)

    def run(self) -> Outcome:
        """All acts. Raises DemoError, LoadError."""
        say, plan = self.console.line, self.plan
        backlog = int(plan.rows * plan.backlog)
        say(f"kafka: producing the first {backlog:,} {self.example.records} to topic {self.ledger.topic}")
        self._load(backlog, rate=None)

        say(f"kubectl apply -k {self.scene.folder.relative_to(EXAMPLES.parent)}")
        self.scene.apply()
        applied = time.time()
        with StatusWatch(self.scene) as watch:
            progress = Progress(self.scene, watch)
            self._until(progress, "its first commit", lambda look: look.committed > 0, FIRST_COMMIT_SECONDS)
            to_first = self._next_commit(applied) - applied
            say(
                f"first commit {to_first:.1f} s after apply;"
                f" from now on {plan.rate:,.0f} {self.example.records} a second more"
            )

            producing = threading.Thread(target=self._produce, name="load", daemon=True)
            producing.start()
            try:
                killed = self._kill_halfway(progress)
                recovered = self._recovery(progress, killed)
                self._until(progress, "its last commit", lambda look: look.committed >= plan.rows)
            finally:
                self._stop.set()
                producing.join()
        return self._account(to_first, recovered)

    def _kill_halfway(self, progress: Progress) -> Killed:
        half = int(self.plan.rows * self.plan.kill_at)
        self._until(progress, f"half of the {self.example.records}", lambda look: look.committed >= half)
        killed = self.scene.signal_driver("KILL")
        self.console.line(f"SIGKILL to every process of {killed.pod}")
        return killed

    def _recovery(self, progress: Progress, killed: Killed) -> float:
        """Watch until a successor commits; return the seconds from the kill to its commit."""
        before = progress.look(len(self.ledger)).committed
        self._until(
            progress,
            "the next run's first commit",
            lambda look: look.epoch > killed.epoch and look.committed > before,
            RECOVERY_SECONDS,
        )
        seconds = self._next_commit(killed.at) - killed.at
        self.console.line(f"committing again, {seconds:.1f} s after the kill")
        return seconds

    def _account(self, to_first: float, recovered: float) -> Outcome:
        self.console.line(f"reconciling: {self.example.comparison}")
        history = self.scene.whole_history()
        account = self.example.account(self.scene, self.ledger, history)
        return Outcome(account=account, history=check_history(history), to_first_commit=to_first, to_recover=recovered)

    def _load(self, rows: int, *, rate: float | None) -> None:
        Loader(self.scene.environment.kafka_host, self.example.feed, self.ledger).load(rows, rate=rate, stop=self._stop)

    def _produce(self) -> None:
        try:
            self._load(self.plan.rows, rate=self.plan.rate)
        except BaseException as error:  # noqa: BLE001 - raised again where the play waits
            self._failure.append(error)

    def _next_commit(self, after: float) -> float:
        moment = next_commit(self.scene.whole_history(), after)
        if moment is None:
            raise DemoError("the fence's history does not have the commit that the fence row has")
        return moment

    def _until(
        self, progress: Progress, what: str, reached: Callable[[Look], bool], seconds: float | None = None
    ) -> Look:
        """Show the live view until `reached`. Without `seconds`, only standing still is a failure."""
        begun = moved = time.monotonic()
        committed = -1
        while True:
            look = progress.look(len(self.ledger))
            if look.message != self._heard:
                self._heard = look.message
                self.console.line(f"operator: {look.message}")
            self.console.live(look.line(self.plan.rows))
            if reached(look):
                return look
            now = time.monotonic()
            if look.committed != committed:
                committed, moved = look.committed, now
            if self._failure:
                raise self._failure[0]
            if look.state == "Stalled":
                raise DemoError(f"the pipeline is Stalled: {look.message}")
            if seconds is not None and now - begun > seconds:
                raise DemoError(f"{what} did not come within {seconds:.0f} s; the pipeline says: {look.message}")
            if seconds is None and now - moved > QUIET_SECONDS:
                raise DemoError(f"no commit for {QUIET_SECONDS:.0f} s, waiting for {what}: {look.message}")
            time.sleep(LOOK_SECONDS)


def next_commit(history: list[HistoryRow], after: float) -> float | None:
    """When the first batch after a moment was committed, in seconds since 1970; None if none is on record."""
    moments = (commit.written_at / 1e6 for _, commit in commits(history) if commit.written_at is not None)
    return min((moment for moment in moments if moment > after), default=None)
