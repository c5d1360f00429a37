"""A file as large as those of RocksDB, by the Hadoop client that ships with Spark, to Cassandra and back."""

from __future__ import annotations

import hashlib
import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from cassandra.cluster import Session

from fakes.checkpoint_services import MIB, Row, serving
from fencepost.fence.cassandra.table import create_schema
from fencepost.state.cassandra import CassandraChunks
from integration.driver.data_service_process import data_service
from testbed.environment import Environment
from unit.spark.test_hadoop_client import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.long]

KEYSPACE: Final = "driver_tests"
SIZE: Final = 64 * MIB
ROOM: Final = 48 * MIB
"""Bytes by which the service may grow: a window of chunks has 4 MiB, and the client of Cassandra copies it."""
NAME: Final = "state/0/1.sst"


def test_a_large_file_is_stored_and_read_with_little_memory(
    spark: SparkSession, session: Session, environment: Environment, tmp_path: Path
) -> None:
    """No fault. The reader is a service that has no copy of the file, as on another node."""
    create_schema(session, KEYSPACE, {"class": "SimpleStrategy", "replication_factor": 1})
    pipeline = f"test/test/{uuid.uuid4().hex}"
    store = CassandraChunks(session, KEYSPACE, pipeline)
    content = random.Random(27).randbytes(SIZE)
    (tmp_path / "there").write_bytes(content)

    with (
        data_service(environment, keyspace=KEYSPACE, pipeline=pipeline, cache=tmp_path / "first") as first,
        serving(store, tmp_path / "unused", data_port=first.port) as served,
    ):
        client = Client(spark, served)
        client.write("state/0/small", b"x")  # opens what the first request opens
        before = first.forget_peak()
        client.files.copyFromLocalFile(client.local(tmp_path / "there"), client.path(NAME))
        grown = first.peak() - before
        tree = served.checkpoint._directory.tree
        assert tree.files[NAME].length == SIZE
        assert grown < ROOM, f"stored with {grown / MIB:.0f} MiB"
    row = Row(metadata=b"{}", tree=tree)
    with (
        data_service(environment, keyspace=KEYSPACE, pipeline=pipeline, cache=tmp_path / "second") as second,
        serving(store, tmp_path / "unused", epoch=2, row=row, data_port=second.port) as successor,
    ):
        reader = Client(spark, successor)
        assert reader.read("state/0/small", 0) == b"x"
        before = second.forget_peak()
        reader.files.copyToLocalFile(reader.path(NAME), reader.local(tmp_path / "back"))
        grown = second.peak() - before
        assert grown < ROOM, f"read with {grown / MIB:.0f} MiB"
        assert not list((tmp_path / "unused").glob("*/*")), "the other data service had it"
    store.delete(list(tree.ids))
    found = hashlib.sha256((tmp_path / "back").read_bytes()).hexdigest()
    assert found == hashlib.sha256(content).hexdigest()
