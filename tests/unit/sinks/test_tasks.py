"""What a Spark task does around a sink's half of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from fencepost.context import WARM_TOKEN
from fencepost.errors import BatchFailed, WorkerError, from_text
from fencepost.sinks import BatchToken, retried, task_half
from fencepost.spark.tasks.fan_out import write_all

TOKEN = BatchToken(pipeline="p", epoch=1, version=1, token=5, offsets={"t/0": (0, 3)})
ROWS = [pa.RecordBatch.from_pydict({"a": [number]}) for number in range(3)]


@dataclass
class Takes:
    """A sink that reads so many batches and then ends as if that were all."""

    batches: int
    taken: list[int] = field(default_factory=list)

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        assert batch == TOKEN
        for rows, _ in zip(batches, range(self.batches), strict=False):
            self.taken += rows.column("a").to_pylist()
            yield rows.num_rows


def test_rows_that_a_sink_leaves_unread_fail_the_batch() -> None:
    with pytest.raises(WorkerError) as caught:
        list(task_half.write(Takes(1), TOKEN, "orders", iter(ROWS)))
    error = from_text(str(caught.value))
    assert isinstance(error, BatchFailed)
    assert error.reason == "SinkFailed"
    assert "sink 'orders' ended before it had read all rows" in error.message


def test_so_they_do_where_several_sinks_share_the_rows() -> None:
    writes = {
        name: lambda rows, sink=sink, name=name: task_half.write(sink, TOKEN, name, rows)
        for name, sink in {"all": Takes(9), "one": Takes(1)}.items()
    }
    with pytest.raises(WorkerError, match="sink 'one' ended before it had read all rows"):
        list(write_all(({"all": rows, "one": rows} for rows in ROWS), writes))


@dataclass
class Repeats:
    """A sink that repeats so many requests for each batch."""

    times: int

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        assert batch == TOKEN
        for rows in batches:
            retried(self.times)
            yield rows.num_rows


def test_what_a_sink_repeats_is_its_own_where_several_share_the_rows() -> None:
    writes = {
        name: lambda rows, sink=sink, name=name: task_half.write(sink, TOKEN, name, rows)
        for name, sink in {"calm": Takes(9), "few": Repeats(1), "many": Repeats(5)}.items()
    }
    counted = dict.fromkeys(writes, 0)
    for report in write_all((dict.fromkeys(writes, rows) for rows in ROWS), writes):
        (one,) = report.to_pylist()
        counted[one["sink"]] += one["retries"]
    assert counted == {"calm": 0, "few": 3, "many": 15}


def test_in_a_warm_up_the_rows_are_read_for_a_sink_that_reads_none() -> None:
    read: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number, one in enumerate(ROWS):
            read.append(number)
            yield one

    list(task_half.write(Ends(), replace(TOKEN, token=WARM_TOKEN), "orders", rows()))
    assert read == [0, 1, 2]


class Ends:
    """A sink that does nothing in a warm-up."""

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        assert batches
        assert batch.is_warm_up
        yield from ()


def test_a_sink_that_reads_all_rows_passes() -> None:
    sink = Takes(9)
    reports = list(task_half.write(sink, TOKEN, "orders", iter(ROWS)))
    assert sum(report.column("rows")[0].as_py() for report in reports) == 3
    assert sink.taken == [0, 1, 2]
