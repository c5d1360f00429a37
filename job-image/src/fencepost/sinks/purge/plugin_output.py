"""Deletes the output of offsets from a sink that can do that itself: of files, or of another package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fencepost.contract import DriverConfig, FilesSink, PluginSink, Reason
from fencepost.errors import BadSpec, BatchFailed, DriverError
from fencepost.sinks.interface import PurgeableSink, PurgeToken
from fencepost.sinks.opening import open_declared
from fencepost.sinks.purge.purged_sink import Purged

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PluginOutput:
    """A sink that can be purged, whose it is, and the token of its last committed batch."""

    sink: PurgeableSink
    name: str
    pipeline: str
    epoch: int
    committed: int

    def check(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Raise BadSpec where the store cannot find the rows of these records, DependencyDown."""
        self._guarded(lambda: self.sink.count(ranges))

    def purge(self, ranges: Mapping[str, tuple[int, int]], timestamp: int | None) -> Purged:
        """Delete the rows of these records; without a timestamp only count them. Raises DriverError."""
        rows = self._guarded(lambda: self.sink.count(ranges))
        if timestamp is None:
            return Purged(rows, rows)
        token = PurgeToken(
            pipeline=self.pipeline, epoch=self.epoch, token=timestamp, offsets=ranges, committed=self.committed
        )
        self._guarded(lambda: self.sink.purge(token))
        return Purged(rows, self._guarded(lambda: self.sink.count(ranges)))

    def _guarded(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except DriverError:
            raise
        except Exception as error:
            raise BatchFailed(
                f"sink {self.name!r} could not be purged: {type(error).__name__}: {error}", reason=Reason.SINK_FAILED
            ) from error


def open_purgeable(
    config: DriverConfig, sink: PluginSink | FilesSink, options_dir: Path | None, *, committed: int
) -> PluginOutput:
    """Return a declared sink to purge. Raises BadSpec where its package cannot do that, or as `open_plugin` does."""
    made = open_declared(config, sink, options_dir)
    if not isinstance(made, PurgeableSink):
        raise BadSpec(
            f"sink {sink.name!r}: its output cannot be deleted: {type(made).__name__} is not a"
            " fencepost.sinks.PurgeableSink",
            reason=Reason.SINK_INVALID,
            remedy="Set deleteOutput to false, or use a version of its package that can delete.",
        )
    return PluginOutput(made, sink.name, config.pipeline, config.epoch, committed)
