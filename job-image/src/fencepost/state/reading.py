"""The state that a fence row or a snapshot has committed, served to Spark for reading.

Nothing is claimed, and no change reaches the fence or the chunks: every request for one is refused.  A driver that runs
meanwhile keeps each file of a row for `collector.GRACE` seconds after a commit replaces it, and each file of a snapshot
for as long as the snapshot exists.  A file that is collected nevertheless fails the read: its id is never used again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn
from uuid import UUID

from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import ChunkStore
from fencepost.state.errors import EpochOver
from fencepost.state.fence_committer import directory_of
from fencepost.state.progress import Committed
from fencepost.state.tree import Tree
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.client_settings import client_settings
from fencepost.state.webhdfs.file_cache import FileCache
from fencepost.state.webhdfs.name_service import scope_of
from fencepost.state.webhdfs.serving import Listening, Scope, serving

LOOPBACK: Final = "127.0.0.1"
CACHE_BYTES: Final = 1 << 30
"""Bytes of files that are kept on disk while they are read."""
_SCOPE: Final = Scope(pipeline="read", epoch=0)
_HERE: Final = Listening(address=LOOPBACK, host=LOOPBACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """A checkpoint that is served: its location for Spark, and the settings that Spark needs to read it.

    The settings hold the secret of this service. `sizes` are the bytes of each operator's files.
    """

    location: str
    settings: Mapping[str, str] = field(repr=False)
    sizes: Mapping[int, int]


@contextmanager
def readable(
    committed: Committed,
    chunks: ChunkStore,
    *,
    folder: Path,
    patience: float,
    failed: Callable[[Exception], object],
    cache_bytes: int = CACHE_BYTES,
    listening: Listening = _HERE,
    keys: Keys | None = None,
    scope: Scope = _SCOPE,
) -> Iterator[Readable]:
    """Serve committed state for the block: to this machine, or where it is `listening`.

    `folder` takes copies of files, `cache_bytes` at most. `chunks` may be asked for `patience` seconds. `failed` is
    called with why a file cannot be read, before Spark knows.  `keys` and `scope` are those of a client that is set
    already.
    Raises FenceError, CheckpointDamaged, OSError where no port is free.
    """
    nothing = _Nothing()
    directory = directory_of(committed, chunks)
    checkpoint = Checkpoint(directory, nothing, nothing, now=lambda: 0, ended=lambda _error: None)
    checkpoint.close()
    keys = keys or Keys(secrets.token_hex())
    with serving(
        checkpoint,
        chunks,
        keys=keys,
        scope=scope,
        listening=listening,
        cache=FileCache(folder, most=cache_bytes),
        failed=failed,
    ) as location:
        header = keys.header(scope_of(scope.pipeline, scope.epoch))
        settings = client_settings(header, patience=patience)
        yield Readable(location=location, settings=settings, sizes=sizes_of(directory.tree))


def sizes_of(tree: Tree) -> dict[int, int]:
    """Return the bytes of each operator's files, by its number: 'state/0/2/1.zip' is one of operator 0."""
    sizes: dict[int, int] = {}
    for path, file in tree.files.items():
        match path.split("/"):
            case ["state", operator, _, *_] if operator.isdecimal():
                sizes[int(operator)] = sizes.get(int(operator), 0) + file.length
    return sizes


class _Nothing:
    """What plans and commits nothing, and has no id for a file."""

    def plan(self, batch: int, **_: object) -> NoReturn:
        """Refuse to plan."""
        raise EpochOver(f"batch {batch} is not planned: the state is only read")

    def begin(self) -> None:
        """Nothing waits."""

    def commit(self, batch: int, **_: object) -> NoReturn:
        """Refuse to commit."""
        raise EpochOver(f"batch {batch} is not committed: the state is only read")

    def next(self) -> UUID:
        """Refuse to give an id."""
        raise EpochOver("no file is created: the state is only read")
