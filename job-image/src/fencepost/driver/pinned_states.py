"""The pinned states of a run: rows that snapshots of this pipeline's namespace have, read once before the claim.

A snapshot is never changed, so every run with the same spec reads the same rows.  They are held by the driver, so
nothing that happens to the snapshot later reaches the run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from cassandra.cluster import Session

from fencepost.contract import DriverConfig, PinnedState, Reason
from fencepost.errors import BadSpec
from fencepost.fence.cassandra.snapshots import SnapshotTable
from fencepost.fence.patience import Patience
from fencepost.metrics_server import ANY
from fencepost.spark import failures
from fencepost.spark.stateful.stored_state import (
    NotChosen,
    TooManyBytes,
    collected,
    frame_of,
    operator_of,
    operators_of,
    store_of,
)
from fencepost.state.cassandra import CassandraChunks
from fencepost.state.chunks import ChunkStore, PatientChunks
from fencepost.state.errors import CheckpointError
from fencepost.state.progress import unpack_committed
from fencepost.state.reading import LOOPBACK, Readable, readable
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.serving import Listening, Scope

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_BYTES: Final = 32 << 20
"""Of the rows of one pinned state. The driver holds them, and each batch may send them to the executors."""
MOST_STORED: Final = 1 << 30
"""Bytes of the operator's files. Executors copy what they read to their scratch volumes, of 2 GiB by default."""
CACHE_BYTES: Final = 64 << 20
"""Bytes of files that the driver copies to its scratch volume, of 1 GiB by default: each file is read once or twice."""
_ANOTHER: Final = "Name a snapshot of `fencepost snapshots list` in spec.source.pinnedStates, or remove the entry."


def stored(
    spark: SparkSession, config: DriverConfig, keys: Keys, *, host: str | None, session: Session
) -> Mapping[str, DataFrame]:
    """Return what `read_all` does, of snapshots and files in the fence's keyspace."""
    patience, snapshots = Patience(config.patience), SnapshotTable(session, config.fence_keyspace)

    def checkpoint(pin: PinnedState) -> bytes | None:
        found = patience.ask(lambda: snapshots.read(pin.pipeline, UUID(pin.snapshot)))
        return found.checkpoint if found is not None else None

    def chunks(pin: PinnedState) -> ChunkStore:
        return PatientChunks(CassandraChunks(session, config.fence_keyspace, pin.pipeline), patience)

    return read_all(spark, config, keys, host=host, checkpoint=checkpoint, chunks=chunks)


def read_all(
    spark: SparkSession,
    config: DriverConfig,
    keys: Keys,
    *,
    host: str | None,
    checkpoint: Callable[[PinnedState], bytes | None],
    chunks: Callable[[PinnedState], ChunkStore],
) -> dict[str, DataFrame]:
    """Return the rows of each pinned state, by its name.

    `host` is the pod's address, None locally.  `checkpoint` returns that of the snapshot, None without a snapshot or a
    state; `chunks` returns the files of its pipeline.  Raises BadSpec, FenceError, BatchFailed.
    """
    found = {}
    for pin in config.pinned_states:
        try:
            found[pin.name] = _Reading(spark, config, keys, host).rows(pin, checkpoint(pin), chunks(pin))
        except CheckpointError as error:
            raise _unreadable(pin, str(error)) from error
    return found


class _Reading:
    """Reads one pinned state."""

    def __init__(self, spark: SparkSession, config: DriverConfig, keys: Keys, host: str | None) -> None:
        self._spark = spark
        self._config = config
        self._keys = keys
        # Any free ports: a connection that an executor keeps must not reach this run's own checkpoint later.
        self._listening = Listening(address=ANY if host else LOOPBACK, host=host or LOOPBACK)

    def rows(self, pin: PinnedState, checkpoint: bytes | None, chunks: ChunkStore) -> DataFrame:
        """Return the rows. Raises BadSpec, FenceError, CheckpointError, BatchFailed."""
        committed = unpack_committed(checkpoint)
        if committed is None:
            raise _unreadable(pin, "the snapshot does not exist, or has no state")
        failed: list[Exception] = []
        with (
            tempfile.TemporaryDirectory(prefix="fencepost-pinned-", ignore_cleanup_errors=True) as folder,
            readable(
                committed,
                chunks,
                folder=Path(folder),
                patience=self._config.patience,
                failed=failed.append,
                cache_bytes=CACHE_BYTES,
                listening=self._listening,
                keys=self._keys,
                scope=Scope(pipeline=self._config.pipeline, epoch=self._config.epoch),
            ) as served,
        ):
            try:
                return self._collected(pin, served)
            except (NotChosen, TooManyBytes) as error:
                raise _unreadable(pin, str(error), remedy=_remedy(error)) from error
            except Exception as error:
                raise (failed[0] if failed else failures.of_query(error)) from error

    def _collected(self, pin: PinnedState, served: Readable) -> DataFrame:
        operator = operator_of(operators_of(self._spark, served.location), pin.operator)
        store = store_of(operator, pin.store)
        stored = served.sizes.get(operator.id, 0)
        if stored > MOST_STORED:
            raise TooManyBytes(f"the files of operator {operator.id} have {stored >> 20} of {MOST_STORED >> 20} MiB")
        return collected(frame_of(self._spark, served.location, operator, store).drop("partition_id"), MOST_BYTES)


def _unreadable(pin: PinnedState, why: str, *, remedy: str = _ANOTHER) -> BadSpec:
    return BadSpec(
        f"pinned state {pin.name!r}, snapshot {pin.snapshot} of {pin.pipeline}: {why}",
        reason=Reason.PINNED_STATE_UNREADABLE,
        remedy=remedy,
    )


def _remedy(error: NotChosen | TooManyBytes) -> str:
    if isinstance(error, NotChosen):
        return f"Set {error.option} of the entry of spec.source.pinnedStates to one of these."
    return "Pin a smaller state, such as one that a pipeline keeps for this purpose, or store the rows in a table."
