"""The first connections of a run, to Cassandra and to Kafka: what cannot work ends it before Spark is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from fencepost.contract import DriverConfig
from fencepost.driver.environment import Environment
from fencepost.fence import FenceUnavailable, open_to

if TYPE_CHECKING:
    from fencepost.fence import FenceRow
    from fencepost.fence.cassandra.table import CassandraFenceTable
    from fencepost.fence.cassandra.tls import TlsMaterial
    from fencepost.formats.decoding import Decoding
    from fencepost.kafka.log import KafkaLog

CASSANDRA_LIMIT: Final = 60.0
"""Seconds for the first connection to Cassandra."""


class Connections:
    """Opens each once, from any thread. `lap` is called for each that is open."""

    def __init__(
        self,
        config: DriverConfig,
        environment: Environment,
        *,
        stopping: Callable[[], bool],
        lap: Callable[[str], None],
    ) -> None:
        self._config = config
        self._environment = environment
        self._stopping = stopping
        self._lap = lap
        self.has_claimed_before = False
        """Whether the code of this run has claimed an epoch before; known once Cassandra is connected."""

    def cassandra(self) -> CassandraFenceTable:
        """Connect, and end early when the epoch is over or another driver's."""
        from fencepost.fence.cassandra.table import CassandraFenceTable  # noqa: PLC0415

        config = self._config
        deadline = time.monotonic() + CASSANDRA_LIMIT
        while True:
            try:
                table = CassandraFenceTable.connect(
                    config.cassandra,
                    keyspace=config.fence_keyspace,
                    credentials=self._environment.credentials,
                    consistency=config.consistency,
                    tls=self.tls(),
                )
                row = table.read(config.pipeline)
                self.check_held(row)
                self.has_claimed_before = row is not None and bool(config.code) and row.code == config.code
            except FenceUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)
                continue
            self._lap("cassandra")
            return table

    def tls(self) -> TlsMaterial | None:
        """Return what the pod mounts, None without TLS. Raises FenceTlsFailed naming the key."""
        from fencepost.fence.cassandra import tls  # noqa: PLC0415

        if self._config.cassandra.tls is None:
            return None
        return tls.of_folder(self._environment.cassandra_tls)

    def check_held(self, row: FenceRow | None) -> None:
        """Raise FenceMissing or Fenced where this driver holds the fence no more, or never can."""
        # A twin of the run that streams would wait for an executor that never comes: the cluster's cores are taken.
        open_to(
            row,
            self._config.pipeline,
            epoch=self._config.epoch,
            driver=self._environment.driver,
            owner=self._config.owner,
        )

    def kafka(self) -> tuple[KafkaLog, Mapping[str, str]]:
        """Connect, so that wrong servers or credentials end the run before it is warm."""
        from fencepost.kafka.log import KafkaLog, client_properties  # noqa: PLC0415

        properties = client_properties(self._config.source, self._environment.kafka_properties)
        source = KafkaLog(
            properties, self._config.source.topics, patience=self._config.patience, stopping=self._stopping
        )
        source.state()
        self._lap("kafka")
        return source, properties

    def decoding(self) -> Decoding:
        """Ask the schema registry for the schemas to read with, if the spec has any."""
        from fencepost.formats.opening import open_decoding  # noqa: PLC0415 - few pipelines need it

        config = self._config
        found = open_decoding(
            config.source,
            self._environment.registry_credentials,
            patience=config.patience,
            task_patience=config.task_patience,
        )
        if found.columns:
            self._lap("schemas")
        return found
