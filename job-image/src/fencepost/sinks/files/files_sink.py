"""The driver's half of the sink of files: the manifest of each batch, and what earlier attempts left."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import msgspec

from fencepost.contract import FilesSink, Reason
from fencepost.errors import BadSpec, BatchFailed
from fencepost.sinks.files import compaction, purging
from fencepost.sinks.files.manifest import TASKS, Batch, DataFile, Entry, Manifest
from fencepost.sinks.files.row_files import FileTask, task_lists
from fencepost.sinks.files.store import KEYS, Place
from fencepost.sinks.files.stored_manifests import MANY, Manifests
from fencepost.sinks.interface import BatchToken, PurgeableSink, PurgeToken, SinkContext

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

MOMENT: Final = 1.0
"""Seconds of a compaction before a batch, after which no other step begins."""
FOLDER_TYPES: Final = frozenset({"string", "boolean", "date", "tinyint", "smallint", "int", "bigint"})
_LIST: Final = re.compile(rf"{TASKS}/.*/(?P<token>[0-9]{{20}})-[0-9a-f]{{8}}-[0-9]+\.json")
"""Where a task lists its files: `task_lists`, and its number."""
_UNSTORED: Final = ("void", "interval", "variant")
"""Beginnings of types that no file has."""


class ManifestSink(PurgeableSink):
    """One declared sink. It writes and reads below its path alone."""

    def __init__(self, sink: FilesSink, place: Place, pipeline: str) -> None:
        self._sink = sink
        self._pipeline = pipeline
        self._owner = f"{pipeline}/{sink.name}"
        self._task = FileTask(place=place, owner=self._owner, format=sink.format, folders=sink.folders)
        self._store, self._reached = place.open(), place.reached
        self._manifests = Manifests(self._store, self._owner)
        self._parent: int | None = None
        """The token of the newest committed manifest, once it is known."""
        self._last = 0
        """The token of this run's last manifest."""
        self._left = list[str]()
        """Files of attempts that were not committed, which go once the next manifest is there."""
        self._listing = list[str]()
        """Manifests and lists of tasks that go after them."""
        self._unfolded = 0
        """Batches that were committed since the manifests were last folded."""
        self._compaction: Iterator[None] | None = None
        """What is under way, in steps."""
        self._steps = 1
        """How many of them come before a batch: they read twice as many files as the last batch wrote."""
        self._token = 0
        """The token of the batch that was begun last."""
        self._failed = set[Entry]()
        """Manifests whose files could not be merged: not again in this run."""
        self._seen = frozenset[Entry]()
        """Compacted manifests that were visible when the manifests were last folded."""

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column that a file or a folder cannot have."""
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        problems = [
            f"column {name!r} is {found}, which a file cannot have; cast it"
            for name, found in columns.items()
            if found.startswith(_UNSTORED)
        ]
        for name in self._sink.folders:
            if name not in columns:
                problems.append(f"column {name!r} of folders is missing")
            elif columns[name] not in FOLDER_TYPES:
                problems.append(
                    f"column {name!r} of folders is {columns[name]}, and not {' or '.join(sorted(FOLDER_TYPES))}"
                )
        if problems:
            raise BadSpec(
                f"sink {self._sink.name!r}: {'; '.join(problems)}",
                reason=Reason.SINK_MISMATCH,
                remedy="Correct the transform, or folders of the sink in spec.sinks.",
            )

    def task(self) -> FileTask:
        """Return the task's half."""
        return self._task

    def begin(self, batch: BatchToken) -> None:
        """Find the manifest that this batch follows. Raises DependencyDown."""
        self._token = batch.token
        with self._reached():
            if self._parent is None:
                self._parent = self._found(batch)
            elif self._last:
                if self._last <= batch.committed:
                    self._follow(batch)
                elif self._last != batch.token:
                    self._leave(Entry(self._last, self._parent), lambda _: False)
            self._last = 0
            self._store.delete(self._lists(batch))
        self._compact()

    def finish(self, batch: BatchToken) -> None:
        """Create the manifest, then delete what earlier attempts left. Raises DependencyDown, BatchFailed."""
        if self._parent is None:
            raise BatchFailed(f"sink {self._sink.name!r}: the batch was not begun", reason=Reason.SINK_FAILED)
        with self._reached():
            lists = self._lists(batch)
            written = Batch(
                epoch=batch.epoch,
                token=batch.token,
                offsets=dict(batch.offsets),
                format=self._sink.format,
                files=tuple(file for name in lists for file in self._listed(name)),
            )
            made = Manifest(pipeline=self._pipeline, sink=self._sink.name, batches=(written,))
            self._manifests.put(Entry(batch.token, self._parent), made)
            self._last = batch.token
            self._steps = 1 + 2 * len(written.files) // compaction.STEP
            self._store.delete(self._left)
            self._store.delete([*self._listing, *lists])
            self._left, self._listing = [], []

    def count(self, offsets: Mapping[str, tuple[int, int]]) -> int:
        """Return how many rows the records have. Raises BadSpec where the files do not say, DependencyDown."""
        with self._reached():
            return purging.count(self._manifests, self._sink.name, offsets)

    def purge(self, purge: PurgeToken) -> None:
        """Leave a manifest of what stays, then delete the other files. Raises BadSpec, DependencyDown."""
        with self._reached():
            purging.purge(self._manifests, self._sink, purge)

    def _found(self, batch: BatchToken) -> int:
        """Return the newest committed manifest, and note what attempts of earlier runs left."""
        view = self._manifests.of_committed(batch.committed)
        is_visible = cache(partial(self._manifests.has, view))
        for entry in view.stale(batch.token):
            self._leave(entry, is_visible)
        for name in self._store.list(f"{TASKS}/{self._owner}"):
            listed = _LIST.fullmatch(name)
            token = int(listed["token"]) if listed else batch.token  # what others put there is left alone
            if token < batch.token:
                if not is_visible(token):
                    self._left += [file.path for file in self._listed(name)]
                self._listing.append(name)
        self._fold(batch)
        return view.led_to[0].token if view.led_to else 0

    def _follow(self, batch: BatchToken) -> None:
        """Let this batch follow the last one, which is committed."""
        self._parent = self._last
        self._unfolded += 1
        if self._unfolded >= MANY:
            self._fold(batch)
            self._unfolded = 0

    def _fold(self, batch: BatchToken) -> None:
        """Fold the manifests, and begin to compact those that are full."""
        self._manifests.fold(batch.committed)
        if self._compaction is None:
            view = self._manifests.of_committed(batch.committed)
            self._compaction = compaction.chores(self._manifests, view, self._seen, self._failed, lambda: self._token)
            self._seen = frozenset(entry for entry in view.visible if entry.compacted)

    def _compact(self) -> None:
        """Continue with a compaction for a moment. What fails is left out: no batch waits for it."""
        end = time.monotonic() + MOMENT
        for _ in range(self._steps):
            if self._compaction is None or time.monotonic() > end:
                return
            try:
                next(self._compaction)
            except StopIteration:
                self._compaction = None
            except compaction.ERRORS as error:
                self._compaction = None
                log.warning("sink %s: the small files are not merged: %s", self._sink.name, error)

    def _leave(self, entry: Entry, is_visible: Callable[[int], bool]) -> None:
        """Note a manifest to delete, with its files where it is that of a batch that was not committed.

        Files of committed batches are visible by another manifest, or a purge has deleted them.
        """
        with suppress(FileNotFoundError):  # a replaced driver has folded it
            (manifest,) = self._manifests.read([entry])
            batches = manifest.batches if entry.previous is not None and len(manifest.batches) == 1 else ()
            self._left += [file.path for batch in batches if not is_visible(batch.token) for file in batch.files]
        self._listing.append(self._manifests.path(entry))

    def _lists(self, batch: BatchToken) -> list[str]:
        """Return where the tasks of a batch have listed their files."""
        begin = task_lists(self._owner, batch)
        found = self._store.list(f"{TASKS}/{self._owner}")
        return sorted(name for name in found if name.startswith(begin) and _LIST.fullmatch(name))

    def _listed(self, name: str) -> list[DataFile]:
        return msgspec.json.decode(self._store.read(name), type=list[DataFile])


def bind(sink: FilesSink, credentials: Mapping[str, str], context: SinkContext) -> ManifestSink:
    """Return a declared sink. Raises BadSpec for an unknown key of its Secret, DependencyDown."""
    if unknown := credentials.keys() - KEYS.keys():
        raise BadSpec(
            f"sink {sink.name!r}: the Secret of credentialsFrom has the keys {', '.join(sorted(unknown))}",
            reason=Reason.SINK_INVALID,
            remedy=f"Its keys are {', '.join(KEYS)}.",
        )
    place = Place(
        sink=sink.name,
        path=sink.path.rstrip("/"),
        endpoint=sink.endpoint,
        region=sink.region,
        credentials=credentials,
        patience=context.patience,
    )
    return ManifestSink(sink, place, context.pipeline)
