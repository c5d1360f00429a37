"""Rows of Cassandra's answers: named tuples, of a class that short answers share."""

from types import SimpleNamespace

import pytest
from cassandra.query import named_tuple_factory

from fencepost.fence.cassandra.session import MOST_KEPT_NAMES, is_applied, rows


@pytest.mark.parametrize(
    "columns", [["epoch", "version"], ["[applied]", "epoch"], ["class", "count(*)"], ["a", "a"], ["_", "2"]]
)
def test_rows_are_those_of_the_library(columns: list[str]) -> None:
    values = [(1, 2), (3, None)]
    found, expected = rows(columns, values), named_tuple_factory(columns, values)
    assert found == expected
    assert [row._fields for row in found] == [row._fields for row in expected]


def test_answers_with_the_same_columns_share_a_class() -> None:
    first, second = rows(["epoch", "driver"], [(1, "a")]), rows(["epoch", "driver"], [(2, "b")])
    assert type(first[0]) is type(second[0])
    assert second[0].driver == "b"


def test_long_names_of_columns_are_not_kept() -> None:
    columns = ["c" * MOST_KEPT_NAMES, "d"]
    first, second = rows(columns, [(1, 2)]), rows(columns, [(1, 2)])
    assert first == second
    assert type(first[0]) is not type(second[0])


@pytest.mark.parametrize("applied", [True, False])
def test_the_first_column_of_a_conditional_answer_says_whether_it_was_applied(*, applied: bool) -> None:
    (row,) = rows(["[applied]", "epoch"], [(applied, 3)])
    assert is_applied(SimpleNamespace(one=lambda: row)) is applied
