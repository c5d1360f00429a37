"""Which primary keys find the rows of an offset, and which of them may also distinguish pipelines."""

from __future__ import annotations

import pytest

from fencepost.contract.sinks import finds_records, is_of_records_alone


@pytest.mark.parametrize(
    ("partition_key", "clustering_key", "finds"),
    [
        (["topic", "partition"], ["offset"], True),
        (["topic", "partition", "offset"], [], True),
        (["bucket", "topic", "partition"], ["offset", "line"], True),
        (["topic", "partition"], ["line", "offset"], False),
        (["topic"], ["partition", "offset"], False),
        (["order_id"], [], False),
    ],
)
def test_a_key_finds_the_rows_of_an_offset(partition_key: list[str], clustering_key: list[str], finds: bool) -> None:
    assert finds_records(partition_key, clustering_key) is finds


def test_another_column_of_the_partition_key_may_distinguish_pipelines() -> None:
    assert is_of_records_alone(["topic", "partition"])
    assert not is_of_records_alone(["region", "topic", "partition"])
