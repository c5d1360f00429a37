"""A pipeline that looks each flight up in a pinned state of the counted hours, and what its rows must be."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.hourly_counts import looked_up
from e2e.recomputed import Compared, check_equal
from e2e.stream import Stream, cassandra
from fencepost.fence import FenceRow
from harness.kubernetes.kubectl import Kubectl
from harness.pipelines import Pipeline, code
from harness.waiting import eventually

NAME: Final = "hourly-lookups"
CODE: Final = Path(__file__).with_name("hourly_looked_up.py")
TABLE: Final = """
CREATE TABLE {0}.{1} (
  topic text, partition int, bucket bigint, "offset" bigint, departures bigint,
  PRIMARY KEY ((topic, partition, bucket), "offset"))
"""


@contextmanager
def looking_up(counted: Stream, kubectl: Kubectl, id: str) -> Iterator[Stream]:  # noqa: A002 - the field's name
    """Run a pipeline over the same topic that looks its records up in a snapshot of the counted one."""
    place = counted.place
    example = code(counted.example)
    kubectl.apply({**example, "metadata": {"name": NAME}, "data": {**example["data"], CODE.name: CODE.read_text()}})
    table = NAME.replace("-", "_")
    with cassandra(place) as opened:
        opened.execute(TABLE.format(place.tables, table), timeout=60)
    spec = {
        "job": {"codeFrom": {"configMapName": NAME}, "entrypoint": f"{CODE.stem}:transform"},
        "source": {"pinnedStates": [{"name": "hours", "pipeline": counted.pipeline.name, "snapshot": id}]},
    }
    reader = Stream(place=place, pipeline=Pipeline(kubectl, NAME), load=counted.load, table=table, spec=spec)
    reader.apply()
    try:
        yield reader
    finally:
        reader.pipeline.delete()


def check_lookups(hourly: Compared, reader: Stream, pinned: Mapping[Hashable, object]) -> FenceRow:
    """Compare each row of the reader with a look-up in a plain count; return its fence row."""
    ends, place = reader.load.ends(), reader.place

    def drained() -> FenceRow | None:
        row = reader.fence()
        return row if row is not None and {key: row.offsets.get(key) for key in ends} == ends else None

    row = eventually(f"{reader.pipeline.name} commits everything", drained, seconds=180)
    with cassandra(place) as opened:
        rows = opened.execute(f"SELECT partition, offset, departures FROM {place.tables}.{reader.table}")  # noqa: S608
        found = [((each.partition, each.offset), each.departures) for each in rows]
    expected = looked_up(hourly.log(), pinned)
    assert {count is None for count in expected.values()} == {True, False}
    check_equal("the look-ups", found, expected)
    return row
