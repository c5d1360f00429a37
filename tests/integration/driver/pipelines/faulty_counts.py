"""The counts of the integration tests, in a process whose requests to Cassandra fail or wait as a test asks for.

Args: how late a record may be, a web server of the test, and faults:

- `lost-answers`: each change of the fence row is sent twice without an answer, first before its effect, then after it,
  for which /lost is asked;
- `held-writes`: a write of chunks waits while /write answers 503;
- `held-commits`: so does a commit for /commit, and a deletion of a file for /delete; /deleted is asked after it.  The
  run does not look at its fence meanwhile, which would end it.
"""

from __future__ import annotations

import importlib
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

from cassandra import OperationTimedOut
from cassandra.cluster import Session
from pyspark.sql import DataFrame

from fencepost.context import StreamContext
from fencepost.driver import watchdogs
from fencepost.state.cassandra import CassandraChunks
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.fence_committer import FenceCommitter


def stream(events: DataFrame, context: StreamContext) -> DataFrame:
    """Count as `counts.stream` does."""
    delay, url, *faults = context.args
    if "lost-answers" in faults:
        lose_answers(f"{url}/lost")
    if "held-writes" in faults:
        hold(CassandraChunks, "write", f"{url}/write")
    if "held-commits" in faults:
        watchdogs.FENCE_CHECK = 3600.0  # type: ignore[misc]  # Final
        hold(FenceCommitter, "commit", f"{url}/commit")
        count(Checkpoint, "delete", f"{url}/deleted")
        hold(Checkpoint, "delete", f"{url}/delete")
    made: DataFrame = importlib.import_module("counts").counted(events, delay)
    return made


def lose_answers(url: str) -> None:
    """Fail each conditional update of this process twice, as a timeout does, and ask the URL after the second time."""
    execute, tries = Session.execute, Counter[tuple[object, ...]]()

    def failing(session: Session, query: Any, parameters: Any = None, *rest: Any, **more: Any) -> Any:
        text: str = getattr(query, "query_string", "")
        if not (text.startswith("UPDATE ") and " IF " in text):
            return execute(session, query, parameters, *rest, **more)
        change = text, *map(repr, parameters)
        tries[change] += 1
        if tries[change] == 1:
            raise OperationTimedOut("it never arrived")
        answer = execute(session, query, parameters, *rest, **more)
        if tries[change] == 2:
            asked(url)
            raise OperationTimedOut("its answer is lost")
        return answer

    Session.execute = failing


def hold(owner: type, method: str, url: str) -> None:
    """Let a method wait as long as the URL answers 503."""
    real = getattr(owner, method)

    def held(*values: Any, **named: Any) -> Any:
        while asked(url) == 503:
            time.sleep(0.1)
        return real(*values, **named)

    setattr(owner, method, held)


def count(owner: type, method: str, url: str) -> None:
    """Ask the URL after each call of a method."""
    real = getattr(owner, method)

    def counted(*values: Any, **named: Any) -> Any:
        answer = real(*values, **named)
        asked(url)
        return answer

    setattr(owner, method, counted)


def asked(url: str) -> int:
    """Return the status of the answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the test's own
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
