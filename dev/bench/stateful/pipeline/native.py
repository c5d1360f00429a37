"""Structured Streaming without a fence: the same source, query and sink on a checkpoint directory of Spark's own.

The driver imports it in the place of an author's code.  The claim is Fencepost's; each change of the fence row after it
stays in the driver's memory, and no file of the state goes to Cassandra.

'local': a folder of the scratch volume, Spark's local file system. The driver has its logs there, the only worker the
state: neither reads what the other writes.
'slow': files of the driver's scratch volume over WebHDFS, and each request that creates, renames or lists is answered
DELAY later, as by an object store.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from fencepost.batch import Batch
from fencepost.driver.stateful import run as stateful_run
from fencepost.driver.stateful.plan import StreamPlan
from fencepost.driver.stateful.run import StatefulRun
from fencepost.fence import FenceRow
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.spark.stateful.query import StatefulQuery
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.directory import Directory
from fencepost.state.tree import Tree
from fencepost.state.webhdfs.data_services import DataServices
from fencepost.state.webhdfs.http_server import Answer, Request
from fencepost.state.webhdfs.name_service import HERE, NameService

DELAY = 0.025
"""Seconds."""
DELAYED = {"CREATE", "LISTSTATUS", "RENAME"}
FOLDER = Path("/tmp/native")  # noqa: S108 - the pod's scratch volume


def install(checkpoint: str) -> None:
    """Let the run of this process be a native one."""
    location = {"local": local, "slow": slow}[checkpoint]
    CassandraFenceTable.swap = swap  # type: ignore[assignment, method-assign]
    CassandraFenceTable.report_progress = report_progress  # type: ignore[method-assign]

    def stream(run: StatefulRun) -> None:
        run._checkpoint = Nothing()  # type: ignore[assignment]
        run._committer = committer = Uncommitted(run)  # type: ignore[assignment]
        run._plan = StreamPlan(
            config=run._config,
            row=lambda: committer.row,
            source=run._source,
            records=run._records,
            stop=run._stop,
            leader_epochs=run._claiming.leader_epochs,
            written_until=run._claiming.written_until,
        )
        with location(run) as place:
            run._query.run(place, committer, run._write)

    stateful_run.StatefulRun._stream = stream  # type: ignore[assignment, method-assign]


_swap = CassandraFenceTable.swap


def swap(table: CassandraFenceTable, before: FenceRow, after: FenceRow) -> bool:
    """Claim in Cassandra; of everything else say that it is done."""
    return True if before.driver is not None else _swap(table, before, after)


def report_progress(*_: object, **__: object) -> None:
    """Report nothing."""


class Uncommitted:
    """The plans of a query that Spark commits: when it asks for the next batch, the one before is committed."""

    size = 0
    reached: frozenset[UUID] = frozenset()

    def __init__(self, run: StatefulRun) -> None:
        self.row = run.row
        self._run = run
        self._fence = run._fence

    def start(self) -> Mapping[str, int]:
        """Return the offsets at which the query starts."""
        return self._plan.start()

    def end(self, start: Mapping[str, int]) -> Mapping[str, int]:
        """Return where the next batch ends."""
        self._commit()
        found = self._plan.end(start)
        if found != start:
            planned = self._plan.planned(found)
            self._run._began = time.monotonic()
            self.row = self._fence.plan(self.row, offsets=planned.offsets, planned=planned.planned)
        return found

    def batch(self, start: Mapping[str, int], end: Mapping[str, int]) -> Batch:
        """Return the batch."""
        return self._plan.batch(start, end)

    @property
    def _plan(self) -> StreamPlan:
        found = self._run._plan
        assert found is not None
        return found

    def _commit(self) -> None:
        written = self._run._written
        if written is None:
            return
        facts = written[2]
        self.row = self._fence.commit(
            self.row,
            offsets=self.row.planned,
            planned=self.row.planned,
            records=facts.records,
            duration_ms=facts.duration_ms,
        )
        self._run.committed(self.row)


@contextmanager
def local(run: StatefulRun) -> Iterator[str]:
    """Yield a folder, which Spark reaches as it does by default."""
    query = run._query
    assert isinstance(query, StatefulQuery)
    query._spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
    yield f"file:{FOLDER}"


@contextmanager
def slow(run: StatefulRun) -> Iterator[str]:
    """Serve a folder; requests take as long as those of an object store."""
    handle = NameService.handle

    def slowly(service: NameService, request: Request) -> Answer:
        if request.parameters.get("op", "").upper() in DELAYED and HERE not in request.parameters:
            time.sleep(DELAY)
        return handle(service, request)

    NameService.handle = slowly  # type: ignore[assignment, method-assign]
    # The data service in the driver, and no other.
    DataServices.near = own_service  # type: ignore[assignment, method-assign]
    checkpoint = Checkpoint(
        Directory(Tree()),
        Numbered(),
        Nothing(),
        now=lambda: time.time_ns() // 1_000_000,
        ended=run._ended,
    )
    with run._serve(checkpoint, Files(FOLDER), run._failed) as location:
        yield location


def own_service(services: DataServices, _: str) -> str:
    """Return the data service of the driver."""
    return services._own


class Numbered:
    """Ids of files."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def next(self) -> UUID:
        """Return the next one."""
        return UUID(int=next(self._numbers))


class Nothing:
    """Commits nothing."""

    def plan(self, batch: int, *, metadata: bytes, offset_log: bytes) -> None:
        """Do nothing."""

    def begin(self) -> None:
        """Do nothing."""

    def commit(self, batch: int, *, commit_log: bytes, tree: Tree) -> None:
        """Do nothing."""


class Files:
    """Chunks in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, file: UUID, parts: Mapping[int, bytes]) -> None:
        """Store parts of a file."""
        for part, content in parts.items():
            (self._folder / f"{file}.{part}").write_bytes(content)

    def read(self, file: UUID, parts: range) -> Sequence[bytes]:
        """Return parts of a file."""
        return [(self._folder / f"{file}.{part}").read_bytes() for part in parts]

    def incomplete(self, files: Mapping[UUID, int]) -> frozenset[UUID]:
        """Return no file: none lacks a part."""
        del files
        return frozenset()

    def delete(self, files: Collection[UUID]) -> None:
        """Delete files."""
        for file in files:
            for path in self._folder.glob(f"{file}.*"):
                path.unlink()
