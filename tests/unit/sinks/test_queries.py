"""Requests of a sink's driver half: prepared once, and repeated while Cassandra has a short outage."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cassandra import Unauthorized, Unavailable
from cassandra.cluster import NoHostAvailable, Session

from fakes.cassandra_refusals import DISK_FULL, QUOTING, refused
from fencepost.contract import ExitCode, Reason
from fencepost.errors import BadSpec, DependencyDown
from fencepost.fence.patience import Patience
from fencepost.sinks.cassandra.index_completeness import Mark, MarkTable
from fencepost.sinks.cassandra.queries import Queries

DENIED = Unauthorized("User has no SELECT permission")
DOWN = Unavailable("no replica", required_replicas=2, alive_replicas=1)


@dataclass
class Cassandra:
    """A session that fails as `failures` say, first come first served, and whose time passes by sleeping."""

    failures: list[Exception] = field(default_factory=list)
    pages: list[list[Any]] = field(default_factory=lambda: [[]])
    """Of each answer."""
    prepared: Counter[str] = field(default_factory=Counter)
    asked: list[tuple[str, list[Any]]] = field(default_factory=list)
    time: float = 0.0

    def prepare(self, text: str) -> SimpleNamespace:
        self.prepared[text] += 1
        self._fail()
        return SimpleNamespace(text=text)

    def execute(
        self, statement: SimpleNamespace, values: list[Any], paging_state: bytes | None = None
    ) -> SimpleNamespace:
        self.asked.append((statement.text, values))
        self._fail()
        number = int(paging_state or b"0")
        following = None if number + 1 == len(self.pages) else str(number + 1).encode()
        return SimpleNamespace(current_rows=self.pages[number], paging_state=following)

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def queries(self, *, patience: float = 30.0) -> Queries:
        passing = Patience(patience, lambda: self.time, self.sleep)
        return Queries(cast(Session, self), "out", "shop", passing)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


def test_a_statement_is_prepared_once_whatever_the_partition_and_the_time() -> None:
    session = Cassandra()
    marks = MarkTable(session.queries(), "orders", "shop/orders")
    for partition in range(1_000):
        marks.read(f"t/{partition}")
        marks.write(f"t/{partition}", Mark(partition, 1_000 + partition, 60))
        marks.remove(f"t/{partition}", at=2_000 + partition)
    assert list(session.prepared.values()) == [1, 1, 1]
    assert len(session.asked) == 3_000
    assert session.asked[-1][1] == [2_999, "shop/orders", "t", 999, -1]


@pytest.mark.parametrize(
    "failure",
    [DENIED, DOWN, NoHostAvailable("no host", {}), refused(DISK_FULL)],
    ids=lambda failure: type(failure).__name__,
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_short_outage_is_outlived(failure: Exception, times: int) -> None:
    session = Cassandra([failure] * times)
    session.queries().execute("DELETE")
    assert [text for text, _ in session.asked] == ["DELETE"] * len(session.asked)
    assert not session.failures


def test_a_short_outage_between_two_pages_repeats_one_page() -> None:
    """Found: a purge that reads the partitions of a large table ended at the first page that failed."""
    session = Cassandra(pages=[[1, 2], [3], [4, 5]])
    answer = session.queries().ask("SELECT DISTINCT")
    found = [next(answer)]
    session.failures = [DOWN, DENIED, DOWN]
    found += answer
    assert found == [1, 2, 3, 4, 5]
    assert len(session.asked) == 3 + 3


@pytest.mark.parametrize(
    ("failure", "reason", "words"),
    [
        (DENIED, Reason.CASSANDRA_CREDENTIALS_REJECTED, "GRANT SELECT and MODIFY ON KEYSPACE shop"),
        (DOWN, Reason.SINK_UNREACHABLE, ""),
    ],
)
def test_a_long_outage_ends_the_run_as_one(failure: Exception, reason: Reason, words: str) -> None:
    session = Cassandra([failure] * 1_000)
    with pytest.raises(DependencyDown) as caught:
        session.queries().execute("DELETE")
    assert (caught.value.code, caught.value.reason) == (ExitCode.DEPENDENCY_DOWN, reason)
    assert words in caught.value.remedy
    assert 20 < session.time <= 30


@pytest.mark.parametrize("text", ["Unknown identifier key", *QUOTING])
def test_a_request_that_is_wrong_is_not_repeated(text: str) -> None:
    session = Cassandra([refused(text)])
    with pytest.raises(BadSpec, match=re.escape(text)):
        session.queries().execute("DELETE")
    assert not session.time
