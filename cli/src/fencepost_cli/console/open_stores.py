"""Connections to the databases of the pipelines' fences, kept while a page asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from fencepost_cli.access import Overrides, fence_access
from fencepost_cli.console.kept_history import KeptHistory
from fencepost_cli.ports import Cluster, FenceAccess, Ports, Store
from fencepost_operator.api import ObjectKey

IDLE: Final = 60.0
"""Seconds after which a connection that no page uses is closed."""
OLDEST: Final = 600.0
"""Seconds after which one is opened again: its Secret may have changed."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The database of a fence, the key of the row there, and what was read of its history by this connection."""

    access: FenceAccess
    store: Store
    history: KeptHistory


@dataclass(slots=True)
class _Entry:
    turn: Lock = field(default_factory=Lock)
    stack: ExitStack = field(default_factory=ExitStack)
    opened: Opened | None = None
    opened_at: float = 0.0
    used_at: float = 0.0

    def close(self) -> None:
        self.opened = None
        self.stack.close()


@dataclass(slots=True)
class OpenStores:
    """One connection for each pipeline, which one request uses at a time. `notify` gets what is forwarded."""

    ports: Ports
    cluster: Cluster
    overrides: Overrides
    notify: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _entries: dict[ObjectKey, _Entry] = field(default_factory=dict)
    _turn: Lock = field(default_factory=Lock)

    @contextmanager
    def of(self, key: ObjectKey) -> Iterator[Opened]:
        """Return the database of the fence for the block; an error in it ends the connection. Raises CliError."""
        self._close_unused(self.clock() - IDLE)
        with self._turn:
            entry = self._entries.setdefault(key, _Entry())
        with entry.turn:
            now = self.clock()
            if entry.opened is not None and now - entry.opened_at > OLDEST:
                entry.close()
            try:
                if entry.opened is None:
                    entry.opened, entry.opened_at = self._open(key, entry.stack), now
                yield entry.opened
            except Exception:
                entry.close()
                raise
            finally:
                entry.used_at = self.clock()

    def close(self) -> None:
        """End all connections."""
        self._close_unused(float("inf"))

    def _open(self, key: ObjectKey, stack: ExitStack) -> Opened:
        found = self.cluster.find(key.name, key.namespace)
        forwards = stack.enter_context(self.cluster.forwards(key.namespace, self.notify))
        access = fence_access(found, self.overrides, forwards)
        return Opened(access, stack.enter_context(self.ports.store(access)), KeptHistory(access.pipeline))

    def _close_unused(self, before: float) -> None:
        with self._turn:
            entries = list(self._entries.values())
        for entry in entries:
            if entry.used_at < before and entry.turn.acquire(blocking=False):
                try:
                    entry.close()
                finally:
                    entry.turn.release()
