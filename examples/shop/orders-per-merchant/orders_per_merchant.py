"""How many orders each merchant has in each minute, by the merchant's own clock, and the orders that are late.

A watermark of Spark follows the newest record of all merchants. One merchant whose clock is ahead makes the orders of
all others late, and one whose clock is behind loses its own. Here each merchant has its own watermark, which moves with
each of its orders. So what is late depends on the order of the records in Kafka alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from fencepost import BatchContext, StreamContext

ORDER = "order_id STRING, merchant STRING, at TIMESTAMP"
MINUTE = 60_000
"""Milliseconds, as all times of the processor."""

LATEST = 5 * MINUTE
"""How long a minute is open after its end, by the newest order of the same merchant."""

FOUND = "merchant STRING, minute BIGINT, orders BIGINT, order_id STRING, topic STRING, partition INT, offset BIGINT"
"""Rows of the processor: with `orders` a count, without it a late order."""


def stream(events: DataFrame, context: StreamContext) -> DataFrame:  # noqa: ARG001 - the records say it all
    """Return the counts of the minutes that a batch closes, and its late orders."""
    order = f.from_json(f.col("value").cast("string"), ORDER, {"mode": "FAILFAST"})
    orders = events.select("topic", "partition", "offset", order.alias("order")).select("*", "order.*")
    timed = orders.withColumn("at", f.unix_millis("at")).drop("order")
    return timed.groupBy("merchant").transformWithState(Merchant(), FOUND, "Update", "None")


def finish(rows: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:  # noqa: ARG001 - the rows say it all
    """Return a frame for each sink of the spec, by its name."""
    rows = rows.withColumn("minute", f.timestamp_millis("minute"))
    return {
        "orders_per_merchant": rows.where("orders IS NOT NULL").select("merchant", "minute", "orders"),
        "late_orders": rows.where("orders IS NULL").drop("orders"),
    }


class Merchant(StatefulProcessor):
    """The clock of one merchant, and the minutes that it has not closed."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._newest = handle.getValueState("newest", "at BIGINT")
        self._open = handle.getMapState("open", "minute BIGINT", "orders BIGINT")

    def handleInputRows(self, key: tuple[str], rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        """Count the orders of a batch, return those that are late, and the minutes that are closed then."""
        (merchant,) = key
        (newest,) = self._newest.get() or (0,)
        counts = {minute: orders for (minute,), (orders,) in self._open.iterator()}
        # The producer's key is the merchant, so all its orders are in one partition.
        for row in sorted(rows, key=lambda row: row.offset):
            minute = row.at - row.at % MINUTE
            if is_closed(minute, newest):
                yield found(merchant, minute, None, row)
            else:
                counts[minute] = counts.get(minute, 0) + 1
            newest = max(newest, row.at)
        self._newest.update((newest,))
        for minute, orders in counts.items():
            if is_closed(minute, newest):
                yield found(merchant, minute, orders)
                self._open.removeKey((minute,))
            else:
                self._open.updateValue((minute,), (orders,))


def is_closed(minute: int, newest: int) -> bool:
    """Return whether a minute may no longer grow, at the newest order of its merchant."""
    return minute + MINUTE + LATEST <= newest


def found(merchant: str, minute: int, orders: int | None, late: Row | None = None) -> Row:
    """Return a row of `FOUND`."""
    place = {name: late[name] if late else None for name in ("order_id", "topic", "partition", "offset")}
    return Row(merchant=merchant, minute=minute, orders=orders, **place)
