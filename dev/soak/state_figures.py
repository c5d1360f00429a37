"""What a stateful pipeline keeps: files of its checkpoint, rows and bytes in Cassandra, disk of the scratch volumes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from cassandra.concurrent import execute_concurrent_with_args

from bench.cpu import COMPONENT
from demo.scene import Scene
from fencepost.fence.cassandra import schema
from fencepost.fence.history import hour_of
from fencepost.state.cassandra import CassandraChunks, CassandraFileIndex
from fencepost.state.fence_committer import tree_of
from fencepost.state.progress import unpack_committed
from soak.resources import MIB, Figure

VOLUMES: Final = "du -sk /var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir"
AT_ONCE: Final = 32
"""Chunks that are read at the same time."""
RECENT: Final = 60
"""Changes of the fence row whose batches make the time of a batch."""


@dataclass(slots=True)
class StateFigures:
    """Reads what one pipeline keeps, again and again; its keyspace of fences holds no other pipeline."""

    scene: Scene
    _sizes: dict[tuple[UUID, int], int] = field(init=False, default_factory=dict)
    """Bytes of each chunk: one is read once, since it never changes."""

    def kept(self) -> Iterator[Figure]:
        """Yield what Cassandra has now."""
        stored = self._stored()
        yield Figure("chunks", "", len(stored))
        yield Figure("bytes of the chunks", "KiB", sum(stored.values()) / 1024)
        yield from self._checkpoint(sum(stored.values()))
        yield from self._index()
        for table in (schema.CHANGES.name, schema.SNAPSHOTS.name):
            (count,) = self._execute(f"SELECT COUNT(*) FROM {self.scene.fence_keyspace}.{table}").one()  # noqa: S608
            yield Figure(f"rows of {table}", "", count)
        yield from self._batches()

    def scratch(self) -> Iterator[Figure]:
        """Yield how full the volumes of the driver and of the workers are now."""
        for role in ("driver", "worker"):
            yield Figure(f"{role} scratch", "MiB", self._scratch(role))

    def _checkpoint(self, stored: int) -> Iterator[Figure]:
        """Yield the files of the committed state, and how much more the table of the chunks holds."""
        row = self.scene.fence()
        done = unpack_committed(row.checkpoint) if row is not None else None
        if row is None or done is None:
            return
        tree = tree_of(done, self._chunks())
        yield Figure("files of the state", "", len(tree.files))
        yield Figure("bytes of the state", "KiB", tree.size / 1024)
        yield Figure("checkpoint in the fence row", "bytes", len(row.checkpoint or b""))
        yield Figure("chunks / state", "", stored / max(tree.size, 1))
        yield Figure("late rows", "", row.late_rows or 0)

    def _chunks(self) -> CassandraChunks:
        return CassandraChunks(self.scene.cassandra, self.scene.fence_keyspace, self.scene.key)

    def _stored(self) -> dict[tuple[UUID, int], int]:
        """Return the bytes of each chunk that is there, by its file and its number."""
        table = f"{self.scene.fence_keyspace}.{schema.CHECKPOINT_CHUNKS.name}"
        there = {(row.file, row.part) for row in self._execute(f"SELECT file, part FROM {table}")}  # noqa: S608
        content = self.scene.cassandra.prepare(
            f"SELECT content FROM {table} WHERE pipeline = ? AND file = ? AND part = ?"  # noqa: S608
        )
        new = [(self.scene.key, file, part) for file, part in there - self._sizes.keys()]
        answers = execute_concurrent_with_args(self.scene.cassandra, content, new, concurrency=AT_ONCE)
        for (_, file, part), answer in zip(new, answers, strict=True):
            if answer.success and (found := answer.result_or_exc.one()) is not None:
                self._sizes[file, part] = len(found.content)
        self._sizes = {chunk: size for chunk, size in self._sizes.items() if chunk in there}
        return self._sizes

    def _index(self) -> Iterator[Figure]:
        ranges = CassandraFileIndex(self.scene.cassandra, self.scene.fence_keyspace, self.scene.key).ranges()
        yield Figure(f"rows of {schema.CHECKPOINT_FILES.name}", "", len(ranges))
        yield Figure("ids of files", "", sum(len(one.numbers) for one in ranges))
        yield Figure("ids that are unreached", "", sum(len(one.unreached) for one in ranges))

    def _batches(self) -> Iterator[Figure]:
        query = (
            f"SELECT duration_ms, committed_at FROM {self.scene.fence_keyspace}.{schema.CHANGES.name}"  # noqa: S608
            f" WHERE pipeline = %s AND hour = %s LIMIT {RECENT}"
        )
        hour = hour_of(datetime.now(UTC))
        found = [row.duration_ms for row in self._execute(query, (self.scene.key, hour)) if row.duration_ms is not None]
        if found:
            yield Figure("time of a batch", "ms", statistics.median(found))

    def _scratch(self, role: str) -> float:
        """Return the MiB of the volumes of a role's pods."""
        total = 0.0
        for pod in self.scene.kubectl.items("pods", f"--selector={COMPONENT}={role}"):
            if pod["status"].get("phase") == "Running":
                look = VOLUMES.format(uid=pod["metadata"]["uid"])
                said = self.scene.nodes.run(pod["spec"]["nodeName"], "sh", "-c", look, check=False).split()
                total += float(said[0]) / MIB if said else 0.0
        return total

    def _execute(self, query: str, values: tuple[object, ...] = ()) -> Any:
        return self.scene.cassandra.execute(query, values)
