"""The example hourly-departures, with what a purge needs, and with a commit that a test can hold back.

The module runs in a pipeline's pods.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import hourly_departures
from pyspark.sql import functions as f

from fencepost.state.fence_committer import FenceCommitter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fencepost import StreamContext


def stream(events: DataFrame, context: StreamContext) -> DataFrame:
    """Return the counts as the example does, with the coordinates of a record of the hour; args: what holds a commit.

    That is a URL that answers 503 as long as a batch whose rows and state are written must not be committed.
    """
    (url,) = context.args
    hold_commits(url)
    event = f.from_json(f.col("value").cast("string"), hourly_departures.EVENT, {"mode": "FAILFAST"})
    read = events.select("topic", "partition", "offset", event.alias("event"))
    flights = read.select("topic", "partition", "offset", "event.*")
    flights = flights.withColumn("departed_at", hourly_departures.departed_at())
    left = flights.where("departed_at IS NOT NULL").withWatermark("departed_at", hourly_departures.LATEST)
    hours = left.groupBy("origin", f.window("departed_at", "1 hour").alias("hour"))
    last = f.max(f.struct("topic", "partition", "offset")).alias("last")
    counted = hours.agg(f.count("*").alias("departures"), last)
    return counted.select("origin", f.col("hour.start").alias("hour"), "departures", "last.*")


def hold_commits(url: str) -> None:
    """Let each commit of this process wait until the URL does not answer 503."""
    commit = FenceCommitter.commit

    def held(committer: FenceCommitter, *values: Any, **named: Any) -> None:
        while is_held(url):
            time.sleep(0.1)
        commit(committer, *values, **named)

    FenceCommitter.commit = held  # type: ignore[method-assign,assignment]


def is_held(url: str) -> bool:
    """Whether the URL answers 503."""
    try:
        with urllib.request.urlopen(url, timeout=10):  # noqa: S310 - the test's own
            return False
    except urllib.error.HTTPError as error:
        return error.code == 503
    except OSError:  # the test is over
        return False
