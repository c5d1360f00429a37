"""What is seen of a pipeline while it runs: its status by a watch, its progress by the fence row."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Self

from demo.scene import Scene
from fencepost.fence import FenceUnavailable
from harness.pipelines import KIND

_FIELDS: Final = ("state", "epoch", "restarts", "message")
_TEMPLATE: Final = "|".join(f"{{.status.{name}}}" for name in _FIELDS) + '{"\\n"}'
RATE_SECONDS: Final = 5.0
"""The rate shown is that of so long a past."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the operator says."""

    state: str = "-"
    restarts: int = 0
    message: str = ""


@dataclass(slots=True)
class StatusWatch:
    """`kubectl get --watch` in a thread, started again when it ends: a status arrives when it is written."""

    scene: Scene
    latest: Status = field(init=False, default_factory=Status)
    _over: threading.Event = field(init=False, default_factory=threading.Event)
    _child: subprocess.Popen[str] | None = field(init=False, default=None)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._follow, name="status", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._child is not None:
            self._child.terminate()
        self._thread.join()

    def _follow(self) -> None:
        kubectl = self.scene.kubectl
        command = [
            *kubectl.command,
            f"--namespace={kubectl.namespace}",
            "get",
            f"{KIND}/{self.scene.name}",
            "--watch",
            f"--output=jsonpath={_TEMPLATE}",
        ]
        while not self._over.is_set():
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
                self._child = child
                if self._over.is_set():  # between the check and the start
                    child.terminate()
                for line in child.stdout or ():
                    self._read(line)
            self._over.wait(0.5)

    def _read(self, line: str) -> None:
        state, _epoch, restarts, message = (line.rstrip("\n").split("|", 3) + [""] * 4)[:4]
        self.latest = Status(state or "-", int(restarts or 0), message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Progress. `rate` in records per second over the last seconds."""

    state: str
    message: str
    epoch: int
    version: int
    committed: int
    produced: int
    rate: float

    @property
    def lag(self) -> int:
        """Produced and not committed."""
        return self.produced - self.committed

    def line(self, rows: int) -> str:
        """The live view."""
        return (
            f"{self.state:<12} epoch {self.epoch}  committed {self.committed:>7,} of {rows:,}"
            f"  lag {self.lag:>7,}  {self.rate:>6,.0f} records/s"
        )


@dataclass(slots=True)
class Progress:
    """Looks at the fence row and remembers enough to compute a rate."""

    scene: Scene
    watch: StatusWatch
    _past: deque[tuple[float, int]] = field(init=False, default_factory=deque)
    _last: tuple[int, int, int] = field(init=False, default=(0, 0, 0))

    def look(self, produced: int) -> Look:
        """How far it is now; while Cassandra does not answer, how far it was."""
        try:
            row = self.scene.fence(patience=0)
        except FenceUnavailable:
            row = None
        if row is not None:
            self._last = (row.epoch, row.version, sum(row.offsets.values()))
        epoch, version, committed = self._last
        status = self.watch.latest
        return Look(
            state=status.state,
            message=status.message,
            epoch=epoch,
            version=version,
            committed=committed,
            produced=max(produced, committed),
            rate=self._rate(committed),
        )

    def _rate(self, committed: int) -> float:
        now = time.monotonic()
        self._past.append((now, committed))
        while len(self._past) > 2 and now - self._past[0][0] > RATE_SECONDS:
            self._past.popleft()
        then, before = self._past[0]
        return (committed - before) / (now - then) if now > then else 0.0
