"""What people do to the pipeline meanwhile: suspend, scale, new and bad code, a topic that grows, rewinds."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from campaign.producer import Load
from campaign.world import CODE, NAME, World
from flights.loader import LoadError
from flights.topics import Topics
from harness.kubernetes.kubectl import KubectlError
from harness.pipelines import KIND

BETWEEN: Final = (10.0, 40.0)
"""Seconds from the end of one action to the next."""
LASTS: Final = (5.0, 30.0)
"""Seconds that a pipeline is suspended, or runs with bad code."""
MOST_PARTITIONS: Final = 16
REWIND: Final = "pipelinerewinds.streaming.fencepost.dev"
REWIND_SECONDS: Final = 900.0


class StuckError(Exception):
    """What a user asked for did not happen."""


@dataclass(slots=True)
class Users:
    """Acts at random until stopped. `acted` counts by kind; `spec` is what the users want now."""

    world: World
    load: Load
    chance: random.Random
    report: Callable[[str], None]
    acted: Counter[str] = field(default_factory=Counter)
    spec: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _partitions: int = 4
    _rewinds: int = 0

    def act(self, stop: threading.Event) -> None:
        """Act until the event is set."""
        while not stop.wait(self.chance.uniform(*BETWEEN)):
            name = self.chance.choice(sorted(_ACTIONS))
            self.report(f"user: {name}")
            try:
                _ACTIONS[name](self, stop)
                self.acted[name] += 1
            except StuckError as error:
                self.failures.append(f"{name}: {error}")
                self.report(f"user: {name}: {error}")
                return
            except (LoadError, KubectlError) as error:  # the API server or Kafka is away now
                self.report(f"user: {name} was refused: {error}"[:200])

    def apply(self, **changes: Any) -> None:
        """`kubectl apply` what is wanted, changed; ask again while the API server is away."""
        self.spec.update(changes)
        self._again(lambda: self.world.kubectl.apply(self.world.spec(**self.spec)))

    def suspend(self, stop: threading.Event) -> None:
        """Suspend, and resume."""
        self.apply(suspend=True)
        stop.wait(self.chance.uniform(*LASTS))
        self.apply(suspend=False)

    def scale(self, _: threading.Event) -> None:
        """Ask for one worker or two."""
        workers = self.chance.randint(1, 2)
        self.spec["cluster"] = {"workers": workers}
        self._again(lambda: self.world.kubectl.run("scale", f"{KIND}/{NAME}", f"--replicas={workers}"))

    def release(self, _: threading.Event) -> None:
        """Apply the other release of the code."""
        now = self.spec.get("job", {}).get("entrypoint", "")
        other = "first_release" if now.endswith("second_release") else "second_release"
        self.apply(job={"entrypoint": f"{CODE.stem}:{other}"})

    def bad_release(self, stop: threading.Event) -> None:
        """Apply code that does not exist, then what was there before."""
        before: Mapping[str, Any] = self.spec.get("job", {"entrypoint": f"{CODE.stem}:first_release"})
        self.apply(job={"entrypoint": f"{CODE.stem}:missing"})
        stop.wait(self.chance.uniform(*LASTS) * 2)
        self.apply(job=before)

    def grow(self, _: threading.Event) -> None:
        """Double the topic's partitions: with another number, keys move between old partitions and lose their order."""
        if self._partitions < MOST_PARTITIONS:
            with self.load.held():
                Topics(self.world.bootstrap).grow(self.world.topic, 2 * self._partitions)
            self._partitions *= 2

    def rewind(self, _: threading.Event) -> None:
        """Go back to a moment within the last minutes, and wait for the end of it."""
        self._rewinds += 1
        name = f"back-{self._rewinds}"
        moment = time.gmtime(time.time() - self.chance.uniform(20, 180))
        asked = {
            "apiVersion": "streaming.fencepost.dev/v1beta1",
            "kind": "PipelineRewind",
            "metadata": {"name": name},
            "spec": {"pipeline": NAME, "to": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)}},
        }
        self._again(lambda: self.world.kubectl.apply(asked))
        deadline = time.monotonic() + REWIND_SECONDS
        while time.monotonic() < deadline:
            status = self._status(name)
            if status.get("phase") == "Completed":
                return
            if status.get("phase") == "Failed":
                self.report(f"user: rewind {name} failed: {status.get('message')}")
                return
            time.sleep(2)
        raise StuckError(f"{name} has not ended in {REWIND_SECONDS:.0f} s: {self._status(name)}")

    def _status(self, name: str) -> Mapping[str, Any]:
        try:
            return dict((self.world.kubectl.get(REWIND, name) or {}).get("status", {}))
        except KubectlError:
            return {}

    def _again(self, ask: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                ask()
            except KubectlError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(2)
            else:
                return


_ACTIONS: Final[Mapping[str, Callable[[Users, threading.Event], None]]] = {
    "bad release": Users.bad_release,
    "grow": Users.grow,
    "release": Users.release,
    "rewind": Users.rewind,
    "scale": Users.scale,
    "suspend": Users.suspend,
}
