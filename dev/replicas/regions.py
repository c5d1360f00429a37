"""Regions: a datacenter, an operator and a driver each. One owns the row, and another takes over when it is lost.

The rules are those of docs/fence-protocol.md#failover in short times; the fence, its table and the drivers' batches are
real. What is measured is how long commits pause while a whole datacenter is lost.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from fencepost.fence import Fence
from replicas.clients import PIPELINE, Client, commit_batch, starting
from replicas.nodes import Ring
from replicas.seen_requests import RecordedTable

TAKE_OVER_AFTER: Final = 6.0
LONGEST_GAP: Final = TAKE_OVER_AFTER / 2
RESTARTS_AFTER: Final = 10.0
"""Seconds without a change of its own row, until a region's operator begins another epoch."""
LASTS: Final = (20.0, 30.0)
"""Seconds that a datacenter is lost."""
KINDS: Final = ("cut", "frozen", "killed")
OWNERS: Final = 0.5
"""Of the losses, that are of the owner for certain."""
RECOVERS: Final = 120.0
"""Seconds until commits resume, with all datacenters there, on busy CPUs."""


@dataclass(slots=True)
class Region:
    """One datacenter with an operator and a driver. `is_gone`: they do not act, as its machines are lost."""

    name: str
    is_gone: bool = False
    begun: list[int] = field(default_factory=list)
    """Epochs that its operator began."""
    commits: list[float] = field(default_factory=list)
    """When its driver committed, by the monotonic clock."""
    takeovers: int = 0
    _seen: tuple[object, float, float] = (None, 0.0, 0.0)
    """What was last seen, since when, and when that was looked at last."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def operate(self, client: Client, fence: Fence, table: RecordedTable) -> None:
        """Make one pass: give a sign, keep a run at work where the row is owned, take over where its owner is lost."""
        client.pause(0.4, 0.6)
        if self.is_gone:
            return
        row = fence.read()
        if row is None:
            fence.create(self.name)
            return
        table.report_progress(_sign(self.name), epoch=row.epoch, version=row.version, done=next(self._numbers))
        is_ours, began = row.owner == self.name, time.monotonic()
        sign = None if is_ours else table.read_progress(_sign(row.owner))
        evidence, now = (row.epoch, row.version, sign), time.monotonic()
        before, since, looked_at = self._seen
        if evidence != before or began - looked_at > LONGEST_GAP:
            self._seen = evidence, now, now
            return
        self._seen = evidence, since, now
        if began - since >= (RESTARTS_AFTER if is_ours else TAKE_OVER_AFTER):
            taken = client.world.record.promise(fence.take_over(row, owner=self.name))
            self.takeovers += not is_ours
            self.begun.append(taken.epoch)

    def drive(self, client: Client, fence: Fence, table: RecordedTable) -> None:
        """Be one driver of the newest epoch, or of one before, and commit until fenced."""
        client.pause(0.1, 0.3)
        if not self._is_at_work(client) or not self.begun:
            return
        epoch, pod = client.chance.choice(self.begun[-2:]), f"pod-{next(client.world.names)}"
        row = client.world.record.promise(
            fence.claim(epoch=epoch, driver=pod, code="code", start=starting, owner=self.name)
        )
        while self._is_at_work(client):
            row = client.world.record.promise(commit_batch(client, fence, table, row))
            client.world.commits += 1
            self.commits.append(time.monotonic())
            client.pause(0.0, 0.05)

    def _is_at_work(self, client: Client) -> bool:
        return not self.is_gone and not client.world.ended.is_set()


@dataclass(slots=True)
class Losses:
    """Loses one datacenter after another, and measures."""

    ring: Ring
    regions: dict[str, Region]
    chance: random.Random
    report: Callable[[str], None]
    kinds: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    """Of losses of the owner with a commit elsewhere meanwhile: seconds until that."""
    without: list[str] = field(default_factory=list)
    """Of all losses, those in which nothing was committed in the last seconds of the loss."""

    def play(self, count: int, owner: Callable[[], str], until: Callable[[], bool]) -> list[str]:
        """Lose a datacenter `count` times; return what to report where commits do not resume."""
        for number in range(count):
            if until():
                return []
            of, kind = owner(), self.chance.choice(KINDS)
            name = self.chance.choice(sorted(self.regions))
            name = of if of in self.regions and self.chance.random() < OWNERS else name
            is_owner = of == name
            seconds = self.chance.uniform(*LASTS)
            began = time.monotonic()
            self._lose(name, kind)
            time.sleep(seconds)
            ended = time.monotonic()
            self._note(name, kind, began, ended, is_owner=is_owner)
            self._find(name)
            if not self._resumes():
                return [f"no commit within {RECOVERS:.0f} s after {kind} of {name}"]
            self.report(f"{number + 1}: {kind} of {name} for {seconds:.0f} s{', the owner' if is_owner else ''}")
        return []

    def _note(self, name: str, kind: str, began: float, ended: float, *, is_owner: bool) -> None:
        self.kinds.append(kind)
        others = sorted(at for one in self.regions.values() if one.name != name for at in one.commits if at > began)
        if not any(at > ended - LASTS[0] / 2 for one in self.regions.values() for at in one.commits):
            self.without.append(f"{kind} of {'the owner' if is_owner else 'another one'}")
        if is_owner and others:
            self.pauses.append(others[0] - began)

    def _lose(self, name: str, kind: str) -> None:
        nodes = [node for node in self.ring.nodes if node.datacenter == name]
        far = [node.address for node in self.ring.nodes if node.datacenter != name]
        self.regions[name].is_gone = kind != "cut"
        for node in nodes:
            match kind:
                case "cut":
                    node.cut_from(far)
                case "frozen":
                    node.pause()
                case _:
                    node.kill()

    def _find(self, name: str) -> None:
        self.ring.heal()
        self.regions[name].is_gone = False

    def _resumes(self) -> bool:
        since = time.monotonic()
        while time.monotonic() - since < RECOVERS:
            if any(one.commits and one.commits[-1] > since for one in self.regions.values()):
                return True
            time.sleep(0.2)
        return False


def _sign(region: str) -> str:
    return f"{PIPELINE}#cluster-{region}"
