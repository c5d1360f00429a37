"""Requests of the driver's half of a Cassandra sink, and what their failures mean for the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fencepost.contract import Reason
from fencepost.errors import BadSpec, DependencyDown
from fencepost.fence.cassandra_errors import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cassandra.cluster import Session

PAGE: Final = 5000
"""Rows of one page of an answer."""
AT_ONCE: Final = 64
"""Requests in flight."""


@dataclass(frozen=True, slots=True)
class Queries:
    """Requests for one sink in one keyspace, at the session's consistency level. They raise BadSpec, DependencyDown."""

    session: Session
    sink: str
    keyspace: str

    def ask(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """Yield the rows of the answer, page by page."""
        with self._translated():
            prepared = self.session.prepare(statement)
            prepared.fetch_size = PAGE
            yield from self.session.execute(prepared, values)

    def tell(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Change something."""
        for _ in self.ask(statement, values):
            pass

    def many(self, statement: str, values: Iterable[Sequence[bytes]]) -> Iterator[Any]:
        """Yield the answer to each request, AT_ONCE at a time; values are CQL's bytes, and fill every marker."""
        from cassandra.concurrent import execute_concurrent  # noqa: PLC0415 - as the driver's other clients
        from cassandra.query import BoundStatement  # noqa: PLC0415

        with self._translated():
            prepared = self.session.prepare(statement)

            def bound(row: Sequence[bytes]) -> BoundStatement:
                made = BoundStatement(prepared)
                made.values = list(row)
                return made

            requests = ((bound(row), None) for row in values)
            for _, answer in execute_concurrent(self.session, requests, concurrency=AT_ONCE, results_generator=True):
                yield answer

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from cassandra import InvalidRequest, Unauthorized  # noqa: PLC0415

        try:
            yield
        except Unauthorized as error:
            raise BadSpec(
                f"sink {self.sink!r}: the account may not read or write in keyspace {self.keyspace}: {error}",
                reason=Reason.SINK_INVALID,
                remedy=f"GRANT SELECT and MODIFY ON KEYSPACE {self.keyspace} to it.",
            ) from error
        except InvalidRequest as error:
            raise BadSpec(f"sink {self.sink!r}: {error}", reason=Reason.SINK_INVALID) from error
        except UNANSWERED as error:
            raise DependencyDown(
                f"sink {self.sink!r}: Cassandra did not answer: {error}", reason=Reason.CASSANDRA_UNREACHABLE
            ) from error
