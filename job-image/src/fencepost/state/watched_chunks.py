"""A chunk store that remembers why a request failed: the task that made it has only the text of a Java exception."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from fencepost.state.chunks import ChunkStore

T = TypeVar("T")


class WatchedChunks:
    """Passes each request on to a store. `failure` is the newest error since `forget`."""

    def __init__(self, store: ChunkStore) -> None:
        self._store = store
        self.failure: Exception | None = None

    def forget(self) -> None:
        """Forget the error: what failed has succeeded since."""
        self.failure = None

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        """Store these parts of a file."""
        self._noted(lambda: self._store.write(file, parts))

    def read(self, file: UUID, parts: range) -> Sequence[bytes]:
        """Return these parts, in their order."""
        return self._noted(lambda: self._store.read(file, parts))

    def delete(self, files: Collection[UUID]) -> None:
        """Delete all parts of these files."""
        self._noted(lambda: self._store.delete(files))

    def _noted(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except Exception as error:
            self.failure = error
            raise
