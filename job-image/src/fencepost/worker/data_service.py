"""`python -Im fencepost.worker.data_service CONFIG CACHE`: the data service beside a worker of a stateful pipeline.

CONFIG is the file of the `DataServiceConfig`, CACHE the folder of stored files.  The account and the certificates of
Cassandra are mounted files, and the secret of the cluster's generation is a variable that Spark's worker has: none of
them is in the command line.  The process ends when its standard input does, which its supervisor holds open.

Its port opens when Cassandra is reached: until then the driver sends clients to its own data service.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fencepost.contract import CASSANDRA_CREDENTIALS_DIR, CASSANDRA_TLS_DIR, DataServiceConfig
from fencepost.fence import tls
from fencepost.fence.cassandra.session import connect
from fencepost.fence.errors import FenceError
from fencepost.logs import write_to_stderr
from fencepost.metrics_server import ANY
from fencepost.state.cassandra import CassandraChunks
from fencepost.state.chunks import ChunkStore
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.data_service import DataService
from fencepost.state.webhdfs.file_cache import FileCache
from fencepost.state.webhdfs.http_server import SWEEP, HttpServer

if TYPE_CHECKING:
    from cassandra.cluster import Session

log = logging.getLogger(__name__)

SECRET: Final = "_SPARK_AUTH_SECRET"  # noqa: S105 - the name of Spark's own variable
CONNECT_AGAIN: Final = 5.0
"""Seconds between two attempts to connect."""


def main() -> None:
    """Serve until the supervisor ends."""
    write_to_stderr(level=logging.WARNING)
    # Its retries while a node is down would fill the log.
    logging.getLogger("cassandra").setLevel(logging.ERROR)
    threading.Thread(target=_end_with_supervisor, name="supervisor", daemon=True).start()
    config, cache = DataServiceConfig.from_json(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    keys = Keys(os.environ.pop(SECRET))
    chunks = CassandraChunks(_connected(config), config.keyspace, config.pipeline)
    server(config, chunks, cache, keys, address=ANY).serve_forever(SWEEP)


def server(config: DataServiceConfig, chunks: ChunkStore, cache: Path, keys: Keys, *, address: str) -> HttpServer:
    """Return the server of these chunks on an address. Raises OSError where the port is taken."""
    service = DataService(chunks, FileCache(cache, most=config.cache_bytes), keys)
    return HttpServer(service.handle, address=address, port=config.port)


def credentials_of(folder: Path) -> tuple[str, str] | None:
    """Return user and password of a mounted Secret, None without one."""
    files = folder / "username", folder / "password"
    if not all(file.is_file() for file in files):
        return None
    username, password = (file.read_text(encoding="utf-8") for file in files)
    return username, password


def _connected(config: DataServiceConfig) -> Session:
    """Return a session, however long Cassandra needs; what is mounted is read before each attempt."""
    while True:
        try:
            return connect(
                config.cassandra,
                credentials=credentials_of(Path(CASSANDRA_CREDENTIALS_DIR)),
                consistency=config.consistency,
                tls=tls.of_folder(Path(CASSANDRA_TLS_DIR)) if config.cassandra.tls else None,
            )
        except FenceError as error:
            log.warning("the data service waits for Cassandra, and the driver's serves instead: %s", error)
            time.sleep(CONNECT_AGAIN)


def _end_with_supervisor() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
