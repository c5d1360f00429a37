"""MiB per second of the state's chunks, to Cassandra and back."""

from __future__ import annotations

import io
import os
import time
from typing import Final
from uuid import uuid4

from bench.samples import Sample
from demo.scene import Scene
from fencepost.contract import CassandraEndpoint
from fencepost.fence.cassandra.session import connect
from fencepost.state.cassandra import CassandraChunks
from fencepost.state.chunks import read_file, write_file

SIZE: Final = 64
"""MiB of a file: as large as those of RocksDB."""
FILES: Final = 10


def measure(scene: Scene) -> list[Sample]:
    """Write and read files, one after the other, through a session as drivers and workers have it."""
    place = scene.environment
    endpoint = CassandraEndpoint(contact_points=(place.cassandra_host,), port=place.cassandra_port)
    session = connect(endpoint, credentials=(place.cassandra_username, place.cassandra_password))
    try:
        return _measured(CassandraChunks(session, scene.fence_keyspace, f"{scene.key}-chunks"))
    finally:
        session.cluster.shutdown()


def _measured(store: CassandraChunks) -> list[Sample]:
    content = os.urandom(SIZE << 20)
    written, read = [], []
    for _ in range(FILES):
        file = uuid4()
        before = time.monotonic()
        length = write_file(store, file, io.BytesIO(content), limit=len(content))
        between = time.monotonic()
        found = sum(map(len, read_file(store, file, length)))
        after = time.monotonic()
        store.delete([file])
        written.append(SIZE / (between - before))
        read.append(found / 2**20 / (after - between))
    return [Sample("chunks written", "MiB/s", written), Sample("chunks read", "MiB/s", read)]
