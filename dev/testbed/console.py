"""Progress for a human: one line when a step begins, a heartbeat while it lasts, one line when it is done."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TextIO

HEARTBEAT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Console:
    """Writes `[  12.3s] step: what happens`, counted from the moment it was made."""

    stream: TextIO = field(default_factory=lambda: sys.stdout)
    clock: Callable[[], float] = time.monotonic
    heartbeat: float = HEARTBEAT_SECONDS
    began: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "began", self.clock())

    def say(self, step: str, text: str) -> None:
        """One line, flushed."""
        self.stream.write(f"[{self.clock() - self.began:6.1f}s] {step}: {text}\n")
        self.stream.flush()

    @contextmanager
    def beating(self, step: str, text: str) -> Iterator[None]:
        """Repeat that a step is still at work, at every heartbeat."""
        started = self.clock()
        over = threading.Event()

        def beat() -> None:
            while not over.wait(self.heartbeat):
                self.say(step, f"still {text} ({self.clock() - started:.0f} s)")

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
