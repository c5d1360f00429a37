"""Requests of the driver's half of a Cassandra sink, and what their failures mean for the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fencepost.contract import Reason
from fencepost.errors import BadSpec, DependencyDown
from fencepost.fence.cassandra.errors import UNANSWERED, is_disk_full
from fencepost.fence.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cassandra.cluster import Session

PAGE: Final = 5000
"""Rows of one page of an answer."""
AT_ONCE: Final = 64
"""Requests in flight."""


@dataclass(frozen=True, slots=True)
class Queries:
    """Requests for one sink in one keyspace, at the session's consistency level.

    Each may be repeated, and is for as long as the patience; so is each page of an answer.
    They raise BadSpec, DependencyDown.
    """

    session: Session
    sink: str
    keyspace: str
    patience: Patience
    _prepared: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def ask(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """Yield the rows of the answer, page by page."""
        state: bytes | None = None
        while True:
            page = self._patiently(partial(self._page, statement, values, state))
            yield from page.current_rows
            state = page.paging_state
            if state is None:
                return

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Execute a statement that returns no rows."""
        for _ in self.ask(statement, values):
            pass

    def prepare(self, statement: str) -> Any:  # noqa: ANN401 - the library is untyped
        """Return the prepared statement."""
        return self._patiently(lambda: self._statement(statement))

    def many(self, statement: str, values: Iterable[Sequence[bytes]]) -> Iterator[Any]:
        """Yield the answer to each request, AT_ONCE at a time; values are CQL's bytes, and fill every marker."""
        from cassandra.concurrent import execute_concurrent  # noqa: PLC0415 - as the driver's other clients
        from cassandra.query import BoundStatement  # noqa: PLC0415

        prepared = self.prepare(statement)
        sent: deque[BoundStatement] = deque()

        def requests() -> Iterator[tuple[BoundStatement, None]]:
            for row in values:
                request = BoundStatement(prepared)
                request.values = list(row)
                sent.append(request)
                yield request, None

        answers = execute_concurrent(
            self.session, requests(), concurrency=AT_ONCE, raise_on_first_error=False, results_generator=True
        )
        for is_done, answer in answers:  # in the order of the requests
            request = sent.popleft()
            yield answer if is_done else self._patiently(partial(self.session.execute, request))

    def _page(self, statement: str, values: Sequence[Any], state: bytes | None) -> Any:  # noqa: ANN401
        return self.session.execute(self._statement(statement), values, paging_state=state)

    def _statement(self, text: str) -> Any:  # noqa: ANN401 - the library is untyped
        """Return the statement, prepared once for the session: each node is asked to prepare it."""
        prepared = self._prepared.get(text)
        if prepared is None:
            prepared = self._prepared[text] = self.session.prepare(text)
            prepared.fetch_size = PAGE
        return prepared

    def _patiently(self, request: Callable[[], Any]) -> Any:  # noqa: ANN401 - the library is untyped
        deadline = self.patience.begin()
        while True:
            try:
                with self._translated():
                    return request()
            except DependencyDown as error:
                deadline.pause_or_raise(error)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from cassandra import InvalidRequest, Unauthorized  # noqa: PLC0415

        try:
            yield
        except Unauthorized as error:  # Cassandra also answers so while no replica of its permissions answers
            raise DependencyDown(
                f"sink {self.sink!r}: the account may not read or write in keyspace {self.keyspace}: {error}",
                reason=Reason.CASSANDRA_CREDENTIALS_REJECTED,
                remedy=f"GRANT SELECT and MODIFY ON KEYSPACE {self.keyspace} to it.",
            ) from error
        except InvalidRequest as error:
            if not is_disk_full(error):
                raise BadSpec(f"sink {self.sink!r}: {error}", reason=Reason.SINK_INVALID) from error
            raise DependencyDown(f"sink {self.sink!r}: {error}", reason=Reason.SINK_UNREACHABLE) from error
        except UNANSWERED as error:
            raise DependencyDown(
                f"sink {self.sink!r}: Cassandra did not answer: {error}", reason=Reason.SINK_UNREACHABLE
            ) from error
