"""The checkpoint of a stateful run as Spark reaches it: where the driver serves it, and the settings of its client."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fencepost.contract import DATA_SERVICE_PORT, NAME_SERVICE_PORT, DriverConfig
from fencepost.metrics_server import ANY
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import ChunkStore
from fencepost.state.webhdfs.authentication import Keys
from fencepost.state.webhdfs.client_settings import client_settings
from fencepost.state.webhdfs.file_cache import FileCache
from fencepost.state.webhdfs.name_service import scope_of
from fencepost.state.webhdfs.serving import Listening, Scope, serving

CACHE: Final = "fencepost-state"
"""Folder of the scratch volume for files of the state that were written or read here."""


def client(config: DriverConfig, keys: Keys) -> dict[str, str]:
    """Return Spark's settings for the client of this epoch's checkpoint."""
    patience = max(config.patience, config.task_patience)
    return client_settings(keys.header(scope_of(config.pipeline, config.epoch)), patience=patience)


@contextmanager
def serve(
    config: DriverConfig,
    keys: Keys,
    checkpoint: Checkpoint,
    chunks: ChunkStore,
    failed: Callable[[Exception], object],
    *,
    host: str | None,
) -> Iterator[str]:
    """Serve a checkpoint for the block; the value is its location for Spark. `host` is the pod's address, None locally.

    `failed` is called with why a request of Spark's failed, here or at a worker, before Spark has the answer.
    Raises OSError for a port that is in use.
    """
    state = config.state
    if state is None:
        raise ValueError("a stateless pipeline has no checkpoint to serve")
    if host is None:
        listening = Listening(address="127.0.0.1", host="127.0.0.1")
    else:
        listening = Listening(
            address=ANY,
            host=host,
            name_port=NAME_SERVICE_PORT,
            data_port=DATA_SERVICE_PORT,
            workers_port=state.data_port,
        )
    scope = Scope(pipeline=config.pipeline, epoch=config.epoch)
    with _folder(host) as folder:
        cache = FileCache(folder, most=state.max_bytes)
        with serving(
            checkpoint,
            chunks,
            keys=keys,
            scope=scope,
            listening=listening,
            cache=cache,
            failed=failed,
            patience=config.task_patience,
        ) as location:
            yield location


@contextmanager
def _folder(host: str | None) -> Iterator[Path]:
    """Return the folder of the cache: a pod's own volume, or one of this process, beside which others may run."""
    if host is not None:
        yield Path(tempfile.gettempdir()) / CACHE
        return
    with tempfile.TemporaryDirectory(prefix=f"{CACHE}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
