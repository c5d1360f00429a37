"""Whether an executor can run code from its scratch volume, where the JVM unpacks RocksDB's native library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from fencepost.contract import Reason
from fencepost.errors import BatchFailed, as_worker_error

FOLDER: Final = "SPARK_EXECUTOR_DIRS"
"""The variable with an executor's folder, which `executor/bin/java` sets; none in a local run."""


def check_executable(variables: Mapping[str, str] = os.environ) -> None:
    """Raise WorkerError of BatchFailed where the folder's volume is mounted with noexec.

    Asked for before there is a state: a library that cannot be loaded leaves RocksDB's loader waiting for itself, and
    the operator replaces the run as unresponsive.
    """
    folder = variables.get(FOLDER)
    if folder is None or not os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return
    raise as_worker_error(
        BatchFailed(
            f"worker {os.uname().nodename} cannot load RocksDB's native library: its scratch volume is mounted with"
            " noexec",
            reason=Reason.SCRATCH_NOT_EXECUTABLE,
            remedy="Mount the kubelet's root directory of its node without noexec, or keep the pipeline away from the"
            " node with spec.cluster.nodeSelector.",
        )
    )
