"""The two services in the driver: the names of a checkpoint's files, and bytes for clients without one nearby."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import ChunkStore
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.data_service import DataService
from fencepost.state.webhdfs.data_services import DataServices
from fencepost.state.webhdfs.file_cache import FileCache
from fencepost.state.webhdfs.http_server import Answer, HttpServer, Request
from fencepost.state.webhdfs.name_service import NameService


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where the services listen: an address and two ports (0: any free one). Executors reach them at `host`.

    `workers_port` is the port of the data services beside workers, 0 without any.
    """

    address: str
    host: str
    name_port: int = 0
    data_port: int = 0
    workers_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose checkpoint is served."""

    pipeline: str
    epoch: int


@contextmanager
def serving(
    checkpoint: Checkpoint,
    chunks: ChunkStore,
    *,
    keys: Keys,
    scope: Scope,
    listening: Listening,
    cache: FileCache,
    failed: Callable[[Exception], object],
    patience: float = 0.0,
) -> Iterator[str]:
    """Serve a checkpoint for the block; the value is its location for Spark.

    `failed` and `patience` are as for `NameService`; 0 where the `chunks` have a patience of their own.
    Raises OSError for a port in use.
    """
    data = HttpServer(DataService(chunks, cache, keys).handle, address=listening.address, port=listening.data_port)
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    near = DataServices(own=f"{host}:{data.port}", port=listening.workers_port).near

    def answer(request: Request) -> Answer:
        return service.handle(request)

    names = HttpServer(answer, address=listening.address, port=listening.name_port)
    service = NameService(
        checkpoint,
        keys=keys,
        scope=scope.pipeline,
        epoch=scope.epoch,
        address=f"{host}:{names.port}",
        data_service=near,
        failed=failed,
        patience=patience,
    )
    data.start("data service")
    names.start("name service")
    try:
        yield service.location
    finally:
        names.stop()
        data.stop()
