"""A child process that never outlives the block it runs in, nor do the processes that it starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

_LAST_BREATH: Final = 5.0
"""Seconds that a killed process may take to go."""


@contextlib.asynccontextmanager
async def child_process(*command: str | Path, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:  # noqa: ANN401
    """Start a process with these options of `create_subprocess_exec`, and kill it at the end. Raises OSError."""
    starting = asyncio.create_task(
        # Its own process group, so that a kill takes children along.
        asyncio.create_subprocess_exec(*command, start_new_session=True, **options)
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A start that is cancelled midway leaves its children and its pipes behind: let it finish, then end it.
        await _kill(await starting)
        raise
    try:
        yield process
    finally:
        await _kill(process)


async def _kill(process: asyncio.subprocess.Process) -> None:
    """End the process and what it started, also where it has ended before them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_BREATH):
                await process.communicate()  # to the end of its output, so that nothing of it stays open
