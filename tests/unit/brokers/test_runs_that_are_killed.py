"""The runs that `make brokers` kills."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from brokers import drivers
from brokers.drivers import KILLED, Drivers
from fencepost.contract import ExitCode, Reason, Verdict


@dataclass
class FakeProcess:
    returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode


@dataclass
class OnlyRun:
    """A pipeline with one run, which has this exit code once it is killed."""

    exits: int
    process: FakeProcess = field(default_factory=FakeProcess)
    drivers: Drivers = field(init=False)

    def start(self) -> OnlyRun:
        return self

    def kill(self) -> None:
        self.process.returncode = self.exits
        self.drivers.ended.set()

    def verdict(self) -> Verdict:
        return Verdict(
            exit_code=ExitCode.DEPENDENCY_DOWN, reason=Reason.KAFKA_UNREACHABLE, message="No broker answers.", remedy=""
        )


@pytest.mark.parametrize(
    ("exits", "end"), [(KILLED, "killed"), (int(ExitCode.DEPENDENCY_DOWN), str(Reason.KAFKA_UNREACHABLE))]
)
def test_a_run_that_ends_just_before_it_is_killed_counts_by_its_verdict(
    exits: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "LIVES", (0.0, 0.0))
    run = OnlyRun(exits)
    run.drivers = Drivers(cast(Any, run), random.Random(1), lambda _: None)
    run.drivers.run()
    assert run.drivers.ends == {end: 1}
    assert run.drivers.failures == []
