"""What runs an author's function: batch after batch, or once for a query with a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from fencepost.contract import DriverConfig
from fencepost.entrypoint import finish_of
from fencepost.formats.decoding import AS_BYTES, Decoding
from fencepost.spark.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.sinks import Sink
    from fencepost.spark.source import Read
    from fencepost.spark.stateful.query import StatefulQuery

    Runner: TypeAlias = SparkEngine | StatefulQuery


def runner(
    function: Callable[..., Any],
    *,
    spark: SparkSession,
    config: DriverConfig,
    sinks: Mapping[str, Sink],
    properties: Mapping[str, str],
    records: Read | None = None,
    decoding: Decoding = AS_BYTES,
    states: Mapping[str, DataFrame] | None = None,
) -> Runner:
    """Return the engine of a pipeline without a state, or the query of one with a state. Raises BadSpec.

    `records` reads them where it is not Kafka that has them; `properties` are librdkafka's.
    """
    if config.state is None:
        return SparkEngine(
            spark=spark,
            config=config,
            transform=function,
            sinks=sinks,
            properties=properties,
            records=records,
            decoding=decoding,
            states=states,
        )
    from fencepost.spark.stateful.query import StatefulQuery  # noqa: PLC0415 - a stateless run needs none of it

    return StatefulQuery(
        spark=spark,
        config=config,
        state=config.state,
        stream=function,
        finish=finish_of(config.entrypoint),
        sinks=sinks,
        properties=properties,
        records=records,
        decoding=decoding,
        states=states,
    )
