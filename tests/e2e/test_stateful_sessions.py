"""The example of sessions in the shop, under late and unordered load, compared with a plain recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

import pytest

from demo.sessions import DELAY, session_of
from e2e.recomputed import Compared, Entry, Recomputed
from e2e.stream import Applied
from e2e.test_rewind import ended, rewind
from e2e.test_stateful import snapshot
from harness.faults.cluster_faults import Faults
from harness.kafka_log import Record
from harness.kubernetes.kubectl import Kubectl
from shop.expectation import Arrival, Row, in_utc, sessions
from shop.feeds import VIEWS, Shop

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

EXAMPLE: Final = "shop/sessions"
BACKLOG: Final = 4_000
"""Views before the first fault: two hours, so that most sessions are over."""
KILLS: Final = 2


def recompute(log: Sequence[Record]) -> Recomputed:
    """Return the sessions of a log. No view is so late that it does not count."""
    views = [Arrival.of(VIEWS, record.partition, record.offset, record.value) for record in log]
    over, still_open = sessions(views)
    newest = max(view.at for view in views)
    return Recomputed(
        rows=dict(map(entry, over)),
        state=dict(map(entry, still_open)),
        watermark=newest - DELAY,
    )


def of_table(row: Any) -> Entry:
    """Return a row of the table."""
    return entry(in_utc((row.user, row.started_at, row.ended_at, row.views, row.first_page)))


def of_state(row: Any) -> Entry:
    """Return a row of the state."""
    return entry(session_of(row))


def entry(session: Row) -> Entry:
    """Return a session by its key."""
    user, first, last, views, page = session
    return (user, first), (last, views, page)


@pytest.fixture(scope="module")
def visits(applied: Applied) -> Iterator[Compared]:
    """Return the pipeline, with hours of views that come while it starts."""
    shop = Shop(users=1_500, every=timedelta(seconds=2))
    stream = applied("sessions", example=EXAMPLE, feed=shop.views(), source={"kafka": {"maxRecordsPerBatch": 400}})
    stream.load.burst(BACKLOG)
    stream.pipeline.wait_ready()
    yield Compared(stream, recompute, of_table, of_state)
    stream.pipeline.delete()


def test_killed_drivers_leave_the_sessions_of_a_plain_recomputation(visits: Compared, faults: Faults) -> None:
    first = visits.stream.commits_past(None)
    visits.kill_drivers(faults, KILLS)
    assert visits.check().epoch == first.epoch + KILLS


def test_a_rewind_leaves_the_sessions_of_a_plain_recomputation(visits: Compared, kubectl: Kubectl) -> None:
    """To a snapshot, under load; the rows of the repeated views are written again."""
    stream = visits.stream
    with stream.load.flowing():
        target = {"snapshot": snapshot(stream, kubectl, "early")}
        row = stream.commits_past(stream.commits_past(stream.fence()))
        rewind(stream, "sessions-back", to=target, deleteOutput=False)
        ended(stream, "sessions-back")
        stream.commits_past(stream.fence())
    assert visits.check().epoch > row.epoch
