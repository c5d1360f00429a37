"""Keeps the scratch volume small: Spark keeps what executors that ended have left for as long as the application runs.

A pod whose scratch exceeds its size is evicted.  An application of a pipeline runs for months, and may lose an executor
every few seconds.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from fencepost.worker.executor_folders import Executor, executors

log = logging.getLogger(__name__)

KEPT: Final = 3
"""Folders of executors that ended, per application: with Spark's rolled logs up to 80 MiB each."""
SETTLED: Final = 10.0
"""Seconds since the last change of a folder: an executor that is about to start has no process yet."""
MOST_FILES: Final = 100_000
"""Files that are measured; beyond, the size is that of the first so many."""


def sweep(work: Path, occupied: Callable[[], Collection[str]], *, now: float | None = None) -> int:
    """Remove the blocks of all executors that ended, and the folders of all but the newest few; return how many.

    `occupied` returns the folders that processes work in, as they are when it is called.
    """
    at, removed = time.time() if now is None else now, 0
    found = list(executors(work))
    with_blocks = {each for each in found if each.local.is_dir()}
    # Asked last: the process that made `local` is there from before, and an executor that starts from here on is not
    # in the list.
    folders = occupied()
    ended: dict[str, list[Executor]] = defaultdict(list)
    for each in sorted(found):
        if not each.is_occupied(folders):
            ended[each.application].append(each)
            if each in with_blocks:
                shutil.rmtree(each.local, ignore_errors=True)
    for those in ended.values():
        for each in those[:-KEPT]:
            if at - _changed(each.path) > SETTLED:
                shutil.rmtree(each.path, ignore_errors=True)
                removed += 1
    return removed


def used(folder: Path) -> int:
    """Return the bytes that files below a folder take on the disk."""
    total, files, left = 0, 0, [str(folder)]
    while left and files < MOST_FILES:
        try:
            entries = list(os.scandir(left.pop()))
        except OSError:  # removed meanwhile
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                total += entry.stat(follow_symlinks=False).st_blocks * 512
            except OSError:
                continue
            files += 1
    return total


def _changed(folder: Path) -> float:
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return time.time()
