"""A checkpoint in memory, served to Spark as a driver does: name service and data service on ports of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time

from fencepost.fence.patience import Patience
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import ChunkStore
from fencepost.state.directory import Directory, LogFile
from fencepost.state.file_ids import FileIds
from fencepost.state.memory import MemoryFileIndex
from fencepost.state.tree import Tree
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.data_service import DataService
from fencepost.state.webhdfs.data_services import DataServices
from fencepost.state.webhdfs.file_cache import FileCache
from fencepost.state.webhdfs.http_server import Answer, HttpServer, Request
from fencepost.state.webhdfs.name_service import NameService

SECRET = "of the generation"  # noqa: S105 - of a test
SCOPE = "s/ns/n"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """What the fence row holds of a checkpoint."""

    metadata: bytes = b""
    offset_logs: dict[int, bytes] = field(default_factory=dict)
    commit_logs: dict[int, bytes] = field(default_factory=dict)
    tree: Tree = field(default_factory=Tree)

    @property
    def committed(self) -> int:
        """The last committed batch, -1 without one."""
        return max(self.commit_logs, default=-1)

    def directory(self) -> Directory:
        """The directory of a successor."""
        made = Directory(self.tree)
        logs = {f"offsets/{batch}": text for batch, text in self.offset_logs.items()}
        logs |= {f"commits/{batch}": text for batch, text in self.commit_logs.items()}
        for path, text in logs.items() if self.metadata else ():
            made.put(path, LogFile(text, 0))
        if self.metadata:
            made.put("metadata", LogFile(self.metadata, 0))
        return made


@dataclass(slots=True)
class MemoryCommitter:
    """The fence of one driver, of a row in memory; `committed` is called after each commit."""

    row: Row = field(default_factory=Row)
    committed: Callable[[int], None] = lambda _: None

    def plan(self, batch: int, *, metadata: bytes, offset_log: bytes) -> None:
        """Record the batch, and what is needed of the one before."""
        kept = {number: text for number, text in self.row.offset_logs.items() if number >= batch - 2}
        self.row = replace(self.row, metadata=metadata, offset_logs=kept | {batch: offset_log})

    def begin(self) -> None:
        """Nothing waits."""

    def commit(self, batch: int, *, commit_log: bytes, tree: Tree) -> None:
        """Commit the batch with its state."""
        self.row = replace(self.row, commit_logs={batch: commit_log}, tree=tree)
        self.committed(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One epoch that is being served."""

    names: NameService
    checkpoint: Checkpoint
    committer: MemoryCommitter
    name_server: HttpServer
    data_server: HttpServer
    failed: list[Exception]


@contextmanager
def serving(
    chunks: ChunkStore,
    cache: Path,
    *,
    epoch: int = 1,
    row: Row | None = None,
    keys: Keys | None = None,
    patience: float = 0.0,
    data_port: int | None = None,
) -> Iterator[Served]:
    """Serve a row's checkpoint for the block; with a `data_port`, clients are sent to the data service there."""
    keys = keys or Keys(SECRET)
    failed: list[Exception] = []
    committer = MemoryCommitter(row or Row())
    checkpoint = Checkpoint(
        committer.row.directory(),
        FileIds(MemoryFileIndex(), Patience(0)),
        committer,
        now=lambda: int(time() * 1000),
        ended=lambda _error: None,
    )
    data_server = HttpServer(
        DataService(chunks, FileCache(cache, most=256 * MIB), keys).handle, address="127.0.0.1", port=0
    )
    services = DataServices(own=f"127.0.0.1:{data_port or data_server.port}")

    def answer(request: Request) -> Answer:
        return names.handle(request)

    name_server = HttpServer(answer, address="127.0.0.1", port=0)
    names = NameService(
        checkpoint,
        keys=keys,
        scope=SCOPE,
        epoch=epoch,
        address=f"127.0.0.1:{name_server.port}",
        data_service=services.near,
        failed=failed.append,
        patience=patience,
    )
    data_server.start("data")
    name_server.start("names")
    try:
        yield Served(
            names=names,
            checkpoint=checkpoint,
            committer=committer,
            name_server=name_server,
            data_server=data_server,
            failed=failed,
        )
    finally:
        name_server.stop()
        data_server.stop()
