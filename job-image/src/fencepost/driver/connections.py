"""The first connections of a run, to the fence and to Kafka: what cannot work ends it before Spark is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from fencepost.contract import DriverConfig, FilesSink
from fencepost.driver.environment import Environment
from fencepost.driver.fence_store import FenceStore, open_store
from fencepost.driver.planning.awaiting import has_begun
from fencepost.fence import FenceUnavailable, open_to

if TYPE_CHECKING:
    from fencepost.fence import FenceRow
    from fencepost.formats.decoding import Decoding
    from fencepost.kafka.log import KafkaLog

FENCE_LIMIT: Final = 60.0
"""Seconds for the first connection to the fence."""


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
        """Whether the code of this run has claimed an epoch before; known once the fence is connected."""

    def fence(self) -> FenceStore:
        """Connect to the fence's database, and end early when the epoch is over or another driver's."""
        config = self._config
        deadline = time.monotonic() + FENCE_LIMIT
        while True:
            try:
                store = open_store(config, self._environment)
                row = store.table.read(config.pipeline)
                self.check_held(row)
                if any(isinstance(sink, FilesSink) for sink in config.sinks):
                    # Without the last commit's token the sink takes committed manifests for those of a failed attempt.
                    store.require_output_token()
                self.has_claimed_before = row is not None and bool(config.code) and row.code == config.code
            except FenceUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)
                continue
            self._lap("fence")
            return store

    def check_held(self, row: FenceRow | None) -> None:
        """Raise FenceMissing or Fenced where this driver holds the fence no more, or never can."""
        if self._config.awaits_epoch and not has_begun(row, self._config):
            return
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
